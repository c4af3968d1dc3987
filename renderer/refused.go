package renderer

import "errors"

// ErrRefused is wrapped by errors of Apply that a retry cannot fix. Only a change of the desired
// state helps, or a change of the dataplane, for which the renderer calls its OnChange. A table
// that exceeds the limits of the dataplane is such an error. A dataplane that does not answer, or
// whose memory may become free at any moment, is not. The caller does not retry a refused Apply
// until something has changed. Refusal makes sentinel errors that wrap ErrRefused.
var ErrRefused = errors.New("refused")

// refusal is a sentinel error with its own text that wraps ErrRefused.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// Unwrap returns ErrRefused.
func (r *refusal) Unwrap() error { return ErrRefused }

// Refusal returns a new error with the given text that wraps ErrRefused. Renderers use it for
// exported errors.
func Refusal(text string) error { return &refusal{text} }

// IsRefused reports whether all errors that err joins or wraps are refusals, so that a retry would
// fail in the same way. It returns false if any part may succeed on a retry.
func IsRefused(err error) bool { return allAre(err, ErrRefused) }

// IsNoInterface reports whether all errors that err joins or wraps are an ErrNoInterface: everything
// that has a place is installed.
func IsNoInterface(err error) bool { return allAre(err, ErrNoInterface) }

// allAre reports whether each part of an error is of one kind; nil has none.
func allAre(err, kind error) bool {
	switch e := err.(type) { //nolint:errorlint // this walks the tree of wrapped errors
	case interface{ Unwrap() error }:
		return allAre(e.Unwrap(), kind)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !allAre(part, kind) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	return errors.Is(err, kind)
}
