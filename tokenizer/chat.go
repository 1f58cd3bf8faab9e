package tokenizer

// Message is one turn of a conversation.
type Message struct{ Role, Content string }

type chatTemplate struct{ source string }

func newChatTemplate(source string) *chatTemplate { return &chatTemplate{source} }
