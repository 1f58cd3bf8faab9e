#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require

// Buffers, by their addresses.
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Quads { uvec4 v[]; };

// group is the number of the work group of a dispatch spread over x and y.
uint group() { return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }

const float NEVER = -1e38; // less than any score

// softplus is ln(1 + e^x).
float softplus(float v) {
    if (v > 20) return v;
    float e = exp(v);
    if (e > 0.0625) return log(1 + e);
    return e * (1 - e * (0.5 - e * (1.0 / 3 - e * (0.25 - e * (0.2 - e / 6)))));
}
