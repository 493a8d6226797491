#include <dlock.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	dlock_t *lock;
	uint64_t token;
	int r = dlock_open(&lock, "hello", NULL);

	if (r == 0)
		r = dlock_wait(lock);
	if (r != 0) {
		fprintf(stderr, "hello: %s\n", strerror(r));
		return 1;
	}
	dlock_token(lock, &token);
	printf("%s is mine, with token %llu\n", dlock_name(lock), (unsigned long long)token);
	dlock_post(lock);
	return dlock_close(lock);
}
