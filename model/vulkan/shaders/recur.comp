#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
// The state S [N, width] of each head of each text through its rows: S ← g S; d of the row's values; S ← S + k dᵀ; y = Sᵀq. A work group
// has 16 columns of a head, a lane one of these and every sixteenth of the N rows of S. A row takes one pass over S: y is (g S)ᵀq + (k·q) d.
layout(local_size_x = 256) in;
layout(constant_id = 0) const uint KIND = 0; // of recurrence
const uint DELTA = 0, BY_CHANNEL = 1, SPACE = 2;
layout(constant_id = 1) const uint N = 64;
layout(push_constant) uniform Push {
    Floats x;         // [n, channels]: queries, keys and values from these places on
    Floats a, beta;   // [n, step] what decays are of, as decay; [n, heads] step sizes before their sigmoid
    Floats decay, dt; // [heads or heads·N] factors (each · decays), and what is added before softplus
    Floats skip;      // [heads] D, of SPACE
    Floats y;         // [n, heads, width]
    Words texts;      // [texts, 6]: state before, state after, first row, rows
    uint many, heads, width, channels, step;
    uint queries, keys, values, groups, modulo; // heads of queries and keys
    uint from;                                  // where S begins in a state
    uint decays;                                // decay's numbers a head
    float least, most;                          // of dt; most 0 = no bound
};
const uint COLS = 16, LANES = 16, MINE = (N + LANES - 1) / LANES;
shared float ks[2 * N], qs[2 * N], gs[KIND == BY_CHANNEL ? 2 * N : 1];
shared float dots[3 * COLS * LANES];

void main() {
    uint blocks = (width + COLS - 1) / COLS, text = group() / (heads * blocks), head = group() / blocks % heads;
    uint tx = gl_LocalInvocationID.x % COLS, ty = gl_LocalInvocationID.x / COLS, col = group() % blocks * COLS + tx;
    if (text >= many) return;
    bool live = col < width;
    Floats before = Floats(uvec2(texts.v[text * 6], texts.v[text * 6 + 1])), after = Floats(uvec2(texts.v[text * 6 + 2], texts.v[text * 6 + 3]));
    uint first = texts.v[text * 6 + 4], rows = texts.v[text * 6 + 5], base = from + head * N * width + col;
    uint group_ = modulo != 0 ? head % groups : head * groups / heads;
    float s[MINE];
    for (uint i = 0; i < MINE; i++) {
        uint k = i * LANES + ty;
        s[i] = live && k < N ? before.v[base + k * width] : 0;
    }
    for (uint row = first; row < first + rows; row++) {
        uint turn = row % 2 * N, at = row * channels;
        for (uint i = gl_LocalInvocationID.x; i < N; i += COLS * LANES) {
            ks[turn + i] = x.v[at + keys + group_ * N + i];
            qs[turn + i] = x.v[at + queries + group_ * N + i];
            if (KIND == BY_CHANNEL) {
                uint c = head * N + i;
                gs[turn + i] = exp(decay.v[decays == 1 ? head : c] * softplus(a.v[row * step + c] + dt.v[c]));
            }
        }
        float g = 1, size = 0, v = live ? x.v[at + values + head * width + col] : 0;
        if (KIND == DELTA) g = exp(decay.v[head] * softplus(a.v[row * step + head] + dt.v[head]));
        if (KIND == SPACE) {
            size = max(softplus(a.v[row * step + head] + dt.v[head]), least);
            if (most > 0) size = min(size, most);
            g = exp(size * decay.v[head]);
        } else {
            size = 1 / (1 + exp(-beta.v[row * heads + head]));
        }
        barrier();
        float kept = 0, read = 0, both = 0;
        for (uint i = 0; i < MINE; i++) {
            uint k = i * LANES + ty;
            if (k >= N) break;
            s[i] *= KIND == BY_CHANNEL ? gs[turn + k] : g;
            kept += s[i] * ks[turn + k];
            read += s[i] * qs[turn + k];
            both += ks[turn + k] * qs[turn + k];
        }
        uint mine = ty * COLS + tx;
        dots[mine] = kept;
        dots[COLS * LANES + mine] = read;
        dots[2 * COLS * LANES + mine] = both;
        barrier();
        kept = read = both = 0;
        for (uint i = 0; i < LANES; i++) {
            kept += dots[i * COLS + tx];
            read += dots[(LANES + i) * COLS + tx];
            both += dots[(2 * LANES + i) * COLS + tx];
        }
        float d = KIND == SPACE ? size * v : size * (v - kept);
        for (uint i = 0; i < MINE; i++) {
            uint k = i * LANES + ty;
            if (k < N) s[i] += ks[turn + k] * d;
        }
        if (live && ty == 0) {
            float o = read + both * d;
            if (KIND == SPACE) o += skip.v[head] * v;
            y.v[(row * heads + head) * width + col] = o;
        }
    }
    for (uint i = 0; i < MINE; i++) {
        uint k = i * LANES + ty;
        if (live && k < N) after.v[base + k * width] = s[i];
    }
}
