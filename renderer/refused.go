package renderer

import "errors"

// ErrRefused is what errors of Commit wrap that only a change mends: of what was asked for, or of
// the dataplane, about which the renderer calls its OnChange. A table that is larger than the
// dataplane can take is such an error; a dataplane that does not answer, or one whose memory may
// become free at any moment, is none. A Commit that ends so is not tried again before something
// has changed. Where the text of the refusal stands for itself, see Refusal.
var ErrRefused = errors.New("refused")

// refusal is a sentinel error that wraps ErrRefused and has a text of its own.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

// Unwrap returns ErrRefused.
func (r *refusal) Unwrap() error { return ErrRefused }

// Refusal returns a new error with a text that wraps ErrRefused, for errors that renderers export.
func Refusal(text string) error { return &refusal{text} }

// IsRefused reports whether every error that err joins or wraps ends in ErrRefused, so that
// another try would end as this one did. An error with a part that may pass by itself is not.
func IsRefused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree of wrapped errors is walked here
	case interface{ Unwrap() error }:
		return IsRefused(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !IsRefused(part) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	}
	return errors.Is(err, ErrRefused)
}
