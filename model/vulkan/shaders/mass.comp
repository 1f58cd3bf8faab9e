#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "cache.glsl"
// The weights that attention gave tokens, summed over the rows, [heads, columns], or those of each row, [n, heads, columns]; a thread has a
// head and a token. tiles·16 columns, or splits where tokens were picked.
layout(local_size_x = 64) in;

void main() {
    uint i = gl_WorkGroupID.x * 64 + gl_LocalInvocationID.x, head = gl_WorkGroupID.y, g = head / share, columns = splits;
    if (i >= columns) return;
    Words tile;
    uint slot = token(g, i, tile);
    int pos = slot != NOWHERE ? position(tile, slot) : 0;
    float sum = 0;
    for (uint r = 0; r < n; r++) {
        uint row = r * heads + head;
        float weight = 0;
        if (slot != NOWHERE && visible(int(posq.v[r]), pos)) {
            float s = 0;
            for (uint d = 0; d < DK; d++) s = fma(q.v[row * DK + d], key(tile, slot, d), s);
            weight = exp(score(s) - stats.v[2 * row]) / stats.v[2 * row + 1];
        }
        if ((flags & 4) != 0) y.v[row * columns + i] = weight;
        sum += weight;
    }
    if ((flags & 4) == 0) y.v[head * columns + i] = sum;
}
