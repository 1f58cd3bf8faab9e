#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "conv.glsl"
// y = conv(x), or c·conv(b·x), silu of it, and unit length for some segments. A work group has a segment of a row.
layout(local_size_x = 128) in;
shared float part[128];

float total(float v) {
    v = subgroupAdd(v);
    if (subgroupElect()) part[gl_SubgroupID] = v;
    barrier();
    float sum = 0;
    for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s];
    return sum;
}

void main() {
    uint segments = (count + width - 1) / width, r = group() / segments, segment = group() % segments, lane = gl_LocalInvocationID.x;
    if (r >= n) return;
    uint text = of.v[r];
    Floats before = state(text, 0);
    int row = int(r - texts.v[text * TEXT + 4]);
    float squares = 0;
    for (uint i = lane; i < width && segment * width + i < count; i += 128) {
        uint ch = segment * width + i;
        float v = (flags & 2) != 0 ? bias.v[at + ch] : 0;
        for (uint j = 0; j < K; j++) v += w.v[(at + ch) * K + j] * given(before, r + j - (K - 1), row + int(j) - int(K - 1), ch);
        if ((flags & 1) != 0) v = v / (1 + exp(-v));
        if ((flags & 4) != 0) v *= c.v[r * stride + ch];
        y.v[r * channels + at + ch] = v;
        squares += v * v;
    }
    segment += at / width;
    if (segment >= unit) return;
    float by = 1 / sqrt(total(squares) + 1e-6);
    if (segment < scaled) by *= scale;
    for (uint i = lane; i < width; i += 128) y.v[r * channels + segment * width + i] *= by;
}
