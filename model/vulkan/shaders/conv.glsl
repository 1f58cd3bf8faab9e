// A causal convolution over channels of the rows of several texts: row r of a text sees inputs r−K+1 to r, those before its first row
// from its state, [K−1, channels], oldest first.
layout(constant_id = 0) const uint K = 4; // taps
layout(push_constant) uniform Push {
    Floats x;       // inputs, stride numbers a row; channel `at` first
    Floats b, c;    // factors of inputs and of outputs, as x
    Floats w, bias; // [channels, K], [channels]
    Floats y;       // [n, channels]
    Words texts;    // [texts, 6]: state before, state after, first row, rows
    Words of;       // [n] each row's text
    uint n, count, at, channels, stride, flags; // n: rows, or texts; count channels from `at` on; flags 1: silu, 2: bias, 4: factors
    uint width, unit, scaled;                   // segments of a width: the first ones are made unit length, those at the front times scale
    float scale;
};
const uint TEXT = 6;

Floats state(uint text, uint part) { return Floats(uvec2(texts.v[text * TEXT + 2 * part], texts.v[text * TEXT + 2 * part + 1])); }

// given is an input: of row r of the pass, which is row `row` of a text; negative ones are in its state.
float given(Floats before, uint r, int row, uint channel) {
    if (row < 0) return before.v[uint(int(K - 1) + row) * channels + at + channel];
    float v = x.v[r * stride + channel];
    return (flags & 4) != 0 ? v * b.v[r * stride + channel] : v;
}
