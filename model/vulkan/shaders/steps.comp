#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "weights.glsl"
// y = (W·x + bias)·scale for few rows x: each work group has ROWS rows of W and reads them once for up to NX rows of x.
layout(constant_id = 1) const uint NX = 1;
const uint ROWS = 4, LANES = 64;
layout(local_size_x = 64) in;
shared float part[LANES * 4]; // [subgroup][ROWS], of one row of x

void main() {
    uint first = group() * ROWS, from = gl_WorkGroupID.z * NX, lane = gl_LocalInvocationID.x;
    if (first >= rows) return;
    float acc[ROWS * NX];
    for (uint i = 0; i < ROWS * NX; i++) acc[i] = 0;
    uint units = (cols + 7) / 8;
    for (uint u = lane; u < units; u += LANES) {
        uint c0, c1;
        columns(u, c0, c1);
        vec4 xa[NX], xb[NX];
        for (uint i = 0; i < NX; i++) {
            uint at = min(from + i, n - 1) * cols;
            xa[i] = four(x, at, c0, cols);
            xb[i] = four(x, at, c1, cols);
        }
        for (uint r = 0; r < ROWS; r++) {
            if (first + r >= rows) break;
            vec4 a, b;
            values(w, (first + r) * stride, u, a, b);
            for (uint i = 0; i < NX; i++) acc[r * NX + i] += dot(a, xa[i]) + dot(b, xb[i]);
        }
    }
    for (uint i = 0; i < NX; i++) {
        for (uint r = 0; r < ROWS; r++) {
            float s = subgroupAdd(acc[r * NX + i]);
            if (subgroupElect()) part[gl_SubgroupID * ROWS + r] = s;
        }
        barrier();
        if (lane < ROWS && first + lane < rows && from + i < n) {
            float sum = 0;
            for (uint s = 0; s < gl_NumSubgroups; s++) sum += part[s * ROWS + lane];
            put(from + i, first + lane, sum);
        }
        barrier();
    }
}
