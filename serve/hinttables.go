package serve

import "github.com/go-json-experiment/json/jsontext"

// samplerHints are fields of the samplers and readers of llama.cpp, vLLM, SGLang, text-generation-webui and others that are
// taken where their value changes nothing.
var samplerHints = hints{
	// of beams alone
	"use_beam_search": only("false"), "length_penalty": ignored("0"), "early_stopping": ignored(`t"`), "num_beams": only("1"), "best_of": only("1"), "penalty_alpha": only("0"),
	// samplers that are off
	"tfs_z": only("1"), "tfs": only("1"), "top_a": only("0"), "epsilon_cutoff": only("0"), "eta_cutoff": only("0"), "smoothing_factor": only("0"), "smoothing_curve": only("1"),
	"dynatemp_range": only("0"), "dynatemp_exponent": only("1"), "dynamic_temperature": only("false"), "dynatemp_low": only("1"), "dynatemp_high": only("1"), "temperature_last": only("false"),
	"guidance_scale": only("1"), "negative_prompt": only(`""`),
	"no_repeat_ngram_size": only("0"), "encoder_repetition_penalty": only("1"), "repetition_penalty_range": only("0"), "min_keep": only("0"), "penalize_nl": only("true"), "do_sample": only("true"),
	"ban_eos_token": only("false"), "custom_token_bans": only(`""`), "bad_words": only("[]"), "allowed_token_ids": only("[]"), "samplers": only("[]"), "sampler_priority": only("[]"), "sampler_order": only("[]"),
	"logits_processors": only("[]"), "custom_logit_processor": refused, "custom_params": only("{}"), "vllm_xargs": only("{}"), "adaptive_target": only("-1"), "adaptive_decay": only0(),
	// how the answer is read and written
	"skip_special_tokens": only("true"), "spaces_between_special_tokens": ignored("t"), "include_stop_str_in_output": only("false"), "no_stop_trim": only("false"), "detokenize": only("true"),
	"return_tokens_as_token_ids": only("false"), "prompt_logprobs": only("false"), "truncate_prompt_tokens": only("-1"), "truncate": refused, "post_sampling_probs": only("false"),
	"return_hidden_states": only("false"), "return_full_text": only("false"), "decoder_input_details": only("false"), "top_n_tokens": only("0"), "watermark": only("false"), "details": ignored("t"),
	"stop_regex": only(`""`, "[]"), "response_fields": only("[]"), "t_max_predict_ms": only("0", "-1"), "n_indent": only("0"), "grammar_lazy": only("false"), "grammar_triggers": only("[]"), "preserved_tokens": only("[]"),
	"image_data": only("[]"), "multimodal_data": only("[]"), "lora": only("[]"), "lora_path": refused, "lora_id": refused, "logprob_token_ids": only("[]"), "ignore_logprobs": ignored("t"),
	// where and when it runs
	"cache_prompt": ignored("t"), "id_slot": ignored("0"), "slot_id": ignored("0"), "n_keep": ignored("0"), "n_discard": ignored("0"), "n_cache_reuse": ignored("0"), "num_ctx": ignored("0"),
	"return_progress": ignored("t"), "timings_per_token": ignored("t"), "priority": ignored(`0"`), "request_id": ignored(`"`), "rid": ignored(`"[`), "data_parallel_rank": ignored("0"), "kv_transfer_params": ignored("{"),
	"keep_alive": ignored(`"0`), "ttl": ignored("0"), "draft_model": ignored(`"`), "mm_processor_kwargs": ignored("{"), "guided_decoding_backend": ignored(`"`), "guided_whitespace_pattern": refused, "timeout": ignored("0"),
	"session_params": refused, "truncation_length": ignored("0"), "auto_max_new_tokens": only("false"), "backend_sampling": ignored("t"), "perf_metrics_in_response": ignored("t"), "raw_output": only("false"),
}

// only0 takes any number: a setting of a sampler that is off.
func only0() hint {
	return func(v jsontext.Value) asked {
		if v.Kind() != '0' {
			return asked{want: "a number"}
		}
		return asked{}
	}
}

// thoughtHints are ways to say how long a model may think, and where its thoughts go.
var thoughtHints = hints{
	"include_reasoning": only("true"), "separate_reasoning": only("true"), "stream_reasoning": ignored("t"), "reasoning_in_content": only("false"), "reasoning_format": only(`"auto"`, `"deepseek"`, `"deepseek-legacy"`, `"parsed"`),
	"thinking_budget_tokens": ignored("0"), "reasoning_budget_tokens": ignored("0"), "reasoning_budget": ignored("0"), "thinking_budget": ignored("0"), "thinking_token_budget": ignored("0"), "max_reasoning_tokens": ignored("0"), "max_thinking_tokens": ignored("0"),
	"reasoning_budget_message": ignored(`"`), "reasoning_split": ignored("t"), "prompt_mode": only(`"reasoning"`), "parse_reasoning": only("true"), "preserve_thinking": ignored("t"), "parse_tool_calls": only("true"), "tool_stream": ignored("t"),
}

// accountHints say who asks, what is kept, and at what price.
var accountHints = hints{
	"user": ignored(`"`), "user_id": ignored(`"`), "safety_identifier": ignored(`"`), "user_security_context": ignored("{"), "chat_id": ignored(`"`), "session_id": ignored(`"`), "trace": ignored("{"),
	"metadata": ignored("{"), "client_metadata": ignored("{"), "tags": ignored("["), "store": storeHint, "service_tier": ignored(`"`), "prompt_cache_key": ignored(`"`), "prompt_cache_retention": ignored(`"`),
	"prompt_cache_options": ignored("{"), "prompt_cache_isolation_key": ignored(`"`), "inference_geo": ignored(`"`), "cache_control": ignored("{"), "caching": ignored("t{"), "cache": ignored("t{"), "verbosity": ignored(`"`),
	"parallel_tool_calls": ignored("t"), "moderation": refused,
}

// storeHint: nothing is kept, which false asks for.
func storeHint(v jsontext.Value) asked {
	if sameValue(compact(v), "false") {
		return asked{}
	}
	return ignored("t")(v)
}

// chatHints are those of OpenAI's chat and of the services that speak it.
var chatHints = hints{
	"modalities": only(`["text"]`, "[]"), "audio": refused, "prediction": ignored("{"), "web_search_options": refused, "functions": only("[]"), "function_call": only(`"none"`, `"auto"`), "data_sources": only("[]"),
	"echo": only("false"), "add_special_tokens": only("false"), "chat_template": refused, "documents": refused, "media_io_kwargs": ignored("{"), "disable_tool_validation": ignored("t"), "citation_options": ignored(`"{`),
	// OpenRouter
	"usage": ignored("{"), "provider": ignored("{"), "transforms": ignored("["), "route": ignored(`"`), "models": only("[]"), "plugins": only("[]"), "preset": refused, "image_config": refused,
	// searches of other services
	"enable_search": only("false"), "search_options": refused, "search_parameters": only(`{"mode":"off"}`), "search_settings": refused, "web_search": only("false"), "return_images": only("false"), "return_related_questions": only("false"),
	"incremental_output": ignored("t"), "result_format": only(`"message"`), "safe_prompt": only("false"), "deferred": only("false"), "enhancements": refused, "context_length_exceeded_behavior": only(`"error"`), "safety_model": refused,
}

// completionHints are those of OpenAI's completions.
var completionHints = hints{"add_special_tokens": only("true"), "prompt_embeds": refused, "speculation": ignored(`"[`), "prediction": ignored(`{"`), "store": storeHint}

// responsesHints are those of OpenAI's Responses.
var responsesHints = hints{"modalities": only(`["text"]`), "context_management": ignored("["), "max_tool_calls": ignored("0"), "web_search_options": refused, "prediction": ignored("{"), "audio": refused, "modality": only(`"text"`),
	"agent": refused, "agent_reference": refused, "multi_agent": refused}

// messagesHints are those of Anthropic's Messages, and of the clouds that serve it.
var messagesHints = hints{
	"context_management": ignored("{"), "mcp_servers": only("[]"), "container": refused, "speed": ignored(`"`), "betas": ignored("["), "anthropic_beta": ignored(`["`), "anthropic_version": ignored(`"`), "anthropic-version": ignored(`"`),
	"user_profile_id": ignored(`"`), "diagnostics": ignored("{"), "fallbacks": ignored("["), "stream_options": ignored("{"),
}
