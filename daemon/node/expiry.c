/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The end of certificates, as the log has it. */
#include <time.h>

#include "../log.h"
#include "../net/keys.h"
#include "node.h"

#define DAY_S 86400

/* With each renewal, so that whoever reads the log alone hears of it in time: two weeks before, a day before, and then. */
void expiry_look(struct node *n)
{
	struct node_cluster *c = &n->cluster;
	int64_t cert, ca, left;
	int stage;

	tls_keys_until(c->keys, &cert, &ca);
	if (!cert)
		return;
	left = (ca && ca < cert ? ca : cert) - time(NULL);
	stage = left <= 0 ? 3 : left < DAY_S ? 2 : left < 14 * DAY_S ? 1 : 0;
	if (stage > c->cert_told)
		log_write(stage == 3 ? LOG_LEVEL_ERROR : LOG_LEVEL_WARNING, "%s %s; renew it, write the files, and reload: connections that are up "
			  "stay, new ones are refused after its end", cert <= ca || !ca ? tls_keys_text(c->keys) : "a certificate in CA=",
			  stage == 3 ? "has expired" : stage == 2 ? "expires within a day" : "expires within two weeks");
	c->cert_told = stage;
}
