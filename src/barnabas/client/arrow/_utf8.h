/* Whether bytes are UTF-8. */
#ifndef BARNABAS_UTF8_H
#define BARNABAS_UTF8_H

#include <stdint.h>
#include <string.h>

/* Java's decoder and Arrow's strings agree on this: shortest forms only, no surrogates, nothing above U+10FFFF. */
static int is_utf8(const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size;
    for (uint64_t eight; end - at >= 8; at += 8) {
        memcpy(&eight, at, 8);
        if (eight & 0x8080808080808080u)
            break;
    }
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more)
            return 0;
        uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*at < low || *at > high)
            return 0;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80)
                return 0;
        at += more;
    }
    return 1;
}

#endif
