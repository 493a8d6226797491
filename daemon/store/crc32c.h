/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * CRC-32C (Castagnoli, RFC 3720 appendix B.4). It finds accidents, torn and rotten files, and does
 * not defend against anybody. Feed pieces by passing the last result on; begin with 0.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t size);
