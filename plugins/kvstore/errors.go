package kvstore

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fault is a sentinel that also has a short name, for metrics and status. Who
// must not import this package finds the name by an interface of its own with
// the one method Reason.
type fault struct{ reason, text string }

// Error returns the text of the sentinel.
func (f *fault) Error() string { return f.text }

// Reason returns a stable name of lower-case letters and underscores.
func (f *fault) Reason() string { return f.reason }

// The ways in which a call or a watch fails that callers tell apart. Each has a
// method Reason() string with a stable name.
var (
	// ErrUnavailable: no answer in time, or none at all. The call was repeated
	// before it was given up; a Write may or may not have happened.
	ErrUnavailable error = &fault{"unavailable", "does not answer"}
	// ErrCompacted: the revision asked for is no longer in the store's history.
	ErrCompacted error = &fault{"compacted", "the revision was compacted"}
	// ErrDisconnected: the connection under a watch was lost, or the client closed.
	ErrDisconnected error = &fault{"disconnected", "the connection was lost"}
	// ErrNoLeader: the member under a watch lost its cluster.
	ErrNoLeader error = &fault{"no_leader", "the cluster has no leader"}
	// ErrWentBack: the store is at a lower revision than it was: it lost data.
	ErrWentBack error = &fault{"went_back", "the store is older than it was"}
	// ErrMissed: the store has changes that a watch should have told of.
	ErrMissed error = &fault{"missed", "the watch has not told of a change"}
	// ErrNotLeading: the term is over, another process leads, or nobody does.
	ErrNotLeading error = &fault{"not_leading", "this process does not lead any more"}
)

// codeOf returns the gRPC code of whatever the client library returns.
func codeOf(err error) codes.Code {
	var e rpctypes.EtcdError
	switch {
	case errors.As(err, &e):
		return e.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// transient says that the same call may well succeed when it is repeated.
func transient(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// plainError has a text for people and the error of the library below it.
type plainError struct {
	text  string
	cause error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.cause }

// plain takes the wrapping that gRPC puts around a cause out of its text.
func plain(err error) error {
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return err
	}
	text := s.Message()
	if _, dial, ok := strings.Cut(text, "Error while dialing: "); ok {
		text = strings.TrimSuffix(dial, `"`)
	}
	return &plainError{text: text, cause: err}
}
