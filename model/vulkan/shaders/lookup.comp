#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
// y = rows of W by the numbers in x, times scale; added to y if flags has 2.
layout(local_size_x = 64) in;

void main() {
    uint u = gl_GlobalInvocationID.x, r = gl_WorkGroupID.y;
    if (u >= (cols + 7) / 8) return;
    uint c0, c1;
    columns(u, c0, c1);
    vec4 a, b;
    values(w, floatBitsToUint(x.v[r]) * stride, u, a, b);
    for (uint i = 0; i < 8; i++) {
        uint c = i < 4 ? c0 + i : c1 + i - 4;
        if (c >= cols) continue;
        float v = (i < 4 ? a[i] : b[i - 4]) * scale;
        y.v[r * cols + c] = (flags & 2) != 0 ? y.v[r * cols + c] + v : v;
    }
}
