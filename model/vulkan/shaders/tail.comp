#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "conv.glsl"
// The last K−1 inputs of each text go to its state, which may be where those before lie.
layout(local_size_x = 64) in;

void main() {
    uint blocks = (count + 63) / 64, text = group() / blocks, ch = group() % blocks * 64 + gl_LocalInvocationID.x;
    if (text >= n || ch >= count) return;
    Floats before = state(text, 0), after = state(text, 1);
    uint first = texts.v[text * TEXT + 4];
    for (uint j = 0; j < K - 1; j++) {
        int row = int(texts.v[text * TEXT + 5] + j) - int(K - 1);
        after.v[j * channels + at + ch] = given(before, first + uint(row), row, ch);
    }
}
