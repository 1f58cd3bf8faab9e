package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"terrace"
	"terrace/bench"
	"terrace/csdshim"
	"terrace/engine"
	"terrace/eval"
	"terrace/eval/metrics"
	"terrace/eval/placements"
	"terrace/eval/report"
	"terrace/hub"
	"terrace/internal/kvpage"
	"terrace/internal/settings"
	"terrace/internal/tierspec"
	"terrace/internal/units"
	"terrace/kvmanager"
	"terrace/kvmanager/contexts"
	"terrace/model"
	"terrace/model/bert"
	"terrace/offload"
	"terrace/policy"
	"terrace/simulate"
	"terrace/tokenizer"
	"terrace/weights"
	"terrace/weights/convert"
	"terrace/weights/stream"
)

// Exit codes (the contract of the command line).
const (
	exitDone   = 0
	exitFailed = 1 // the command could not be carried out
	exitUsage  = 2 // wrong flags or arguments
	exitData   = 3 // model or data missing or bad
	exitMemory = 4 // does not fit the memory or the context given
	exitCheck  = 5 // a check failed
)

// usageError marks a mistake in the command line itself (exit 2).
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// dataError marks a missing or bad model or data file (exit 3) whose package has no sentinel of its own.
type dataError struct{ err error }

func (e dataError) Error() string { return e.err.Error() }
func (e dataError) Unwrap() error { return e.err }

func dataErrorf(format string, args ...any) error { return dataError{fmt.Errorf(format, args...)} }

// modelError gives what keeps a model from being read the exit code of bad data: a file that is missing, or that may not be
// read, has no sentinel of its own. What the machine lacks (memory, file handles) keeps its code.
func modelError(err error) error {
	lacks := errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	if isA[*fs.PathError](err) && !lacks {
		return dataError{err}
	}
	return err
}

// openError is modelError for what package terrace did not open: only of the model's files, hub's errors are hubError's.
func openError(err error) error {
	if errors.Is(err, terrace.ErrModel) {
		return modelError(err)
	}
	return hubError(err)
}

// checkError marks a comparison or verification that did not hold (exit 5).
type checkError struct{ err error }

func (e checkError) Error() string { return e.err.Error() }
func (e checkError) Unwrap() error { return e.err }

// Sentinels of the packages below that mean one of the codes; each package's errors.go documents its own.
var (
	usageSentinels = []error{hub.ErrName, policy.ErrUnknown, policy.ErrParam, policy.ErrClash, policy.ErrModel, engine.ErrOption, model.ErrUnknownBackend, model.ErrUnsupported, kvpage.ErrLayout, offload.ErrModel, report.ErrNothing, settings.ErrFile}
	dataSentinels  = []error{
		hub.ErrNotFound, hub.ErrChecksum, hub.ErrNoPip, hub.ErrOffline, hub.ErrUnreachable, hub.ErrAccess,
		weights.ErrFormat, weights.ErrUnsupported, weights.ErrNotFinite, weights.ErrFileChanged, weights.ErrMissingTensor, weights.ErrNotRegular,
		stream.ErrRead, convert.ErrRange, convert.ErrImportance, model.ErrConfig, model.ErrUnknownArchitecture, model.ErrToken,
		tokenizer.ErrVocab, tokenizer.ErrUnsupported, tokenizer.ErrEncode, tokenizer.ErrTemplate, engine.ErrNotFinite, metrics.ErrRow, model.ErrFeature, convert.ErrSource, policy.ErrInstance, bert.ErrNotEncoder, bert.ErrModel, bert.ErrToken,
	}
	memorySentinels = []error{stream.ErrBudget, kvmanager.ErrBudget, engine.ErrMemory, engine.ErrContext, offload.ErrFull, model.ErrDeviceMemory, policy.ErrNoRoom, bert.ErrTooLong,
		syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}
)

// otherSentinels are of errors that are usage errors already where they arrive.
var otherSentinels = []error{eval.ErrOption, eval.ErrData, simulate.ErrArgument, units.ErrSyntax, units.ErrRange, kvpage.ErrElem, contexts.ErrSpec, tierspec.ErrSpec, stream.ErrBias, convert.ErrSpec, csdshim.ErrProfile, csdshim.ErrTrace, placements.ErrUnfit, bench.ErrBase}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case isA[usageError](err), matches(err, usageSentinels) && !matches(err, dataSentinels):
		return exitUsage
	case isA[checkError](err):
		return exitCheck
	case isA[dataError](err), matches(err, dataSentinels), matches(err, backendErrors):
		return exitData
	case matches(err, memorySentinels):
		return exitMemory
	case errors.Is(err, context.Canceled):
		return 130
	}
	return exitFailed
}

func isA[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

func matches(err error, sentinels []error) bool {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return true
		}
	}
	return false
}

// packages are names that errors begin with, for whoever reads the code.
var packages = strings.Fields("attend attention automaton bench bert choice contexts convert csdshim engine eval flash forced gguf grammar guard hf hub kernels keyindex kvmanager " +
	"kvpage local longbench mapped metrics model nand native nearest offline offload placements policy predict quant replay report retrieval ruler run safetensors schedule schema serve share simulate slab storage " +
	"stream strictjson terrace tokencache tokenizer trace units uring vfs vocab vulkan weights wire xla")

// plainly is an error for whoever runs the command: without the names of packages, and without the sentinels that errors end in,
// which say in general what the sentence before has said. What does not fit the context is always said so.
func plainly(err error) string {
	var parts []string
	for part := range strings.SplitSeq(oneLine(err), ": ") {
		if !slices.Contains(packages, part) {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ": ")
	if text == "" {
		return oneLine(err)
	}
	for _, s := range slices.Concat(usageSentinels, dataSentinels, memorySentinels, backendErrors, otherSentinels) {
		if !isA[syscall.Errno](s) && s != engine.ErrContext {
			text = cutSentinel(text, ": "+s.Error())
		}
	}
	return text
}

// cutSentinel takes ": bad option" out where a sentence ends in it.
func cutSentinel(text, tail string) string {
	for _, next := range []string{"; ", ", ", " ("} {
		text = strings.ReplaceAll(text, tail+next, next)
	}
	return strings.TrimSuffix(text, tail)
}
