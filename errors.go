package terrace

import (
	"errors"

	"terrace/engine"
	"terrace/hub"
	"terrace/kvmanager"
	"terrace/policy"
	"terrace/serve"
	"terrace/tokenizer"
)

// What errors are compared with, by errors.Is.
var (
	// ErrNoModel: no model of that name, or it cannot be fetched.
	ErrNoModel = hub.ErrNotFound
	// ErrModel: a model's files cannot be read, or are not what they say; sentinels of package weights and those below tell more.
	ErrModel = errors.New("the model's files cannot be used")
	// ErrContext: a prompt does not fit the context.
	ErrContext = engine.ErrContext
	// ErrMemory: KV does not fit the host memory of Options.Tiers, or the model does not fit what bounds this process.
	ErrMemory = kvmanager.ErrBudget
	// ErrPolicy: a policy is not known. Its parameters have errors of their own, which name them.
	ErrPolicy = policy.ErrUnknown
	// ErrNoTemplate: the model has no chat template; Generate continues text.
	ErrNoTemplate = tokenizer.ErrNoTemplate
	// ErrOption marks an option or a setting out of range, or one that contradicts another.
	ErrOption = engine.ErrOption
	// ErrBusy: more answers are asked for than Options.Queue lets wait.
	ErrBusy = serve.ErrQueue
	// ErrClosed: the model was closed.
	ErrClosed = errors.New("the model is closed")
)

// marked is an error that is a sentinel too, whose text it does not repeat.
type marked struct {
	error
	as error
}

func (m marked) Unwrap() error        { return m.error }
func (m marked) Is(target error) bool { return target == m.as }
