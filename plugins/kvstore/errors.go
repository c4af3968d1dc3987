package kvstore

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fault is a sentinel error with a short name, for metrics and status. Packages that must not
// import this one get the name through an interface with the method Reason.
type fault struct{ reason, text string }

// Error returns the text of the sentinel.
func (f *fault) Error() string { return f.text }

// Reason returns a stable name of lower-case letters and underscores.
func (f *fault) Reason() string { return f.reason }

// The failures of calls and watches that callers distinguish. Each has a method Reason() string
// with a stable name.
var (
	// ErrUnavailable: the store did not answer, or not in time. The call was repeated before it was
	// given up; a Write may or may not have happened.
	ErrUnavailable error = &fault{"unavailable", "does not answer"}
	// ErrCompacted: the requested revision is no longer in the store's history.
	ErrCompacted error = &fault{"compacted", "the revision was compacted"}
	// ErrDisconnected: the connection under a watch was lost, or the client closed.
	ErrDisconnected error = &fault{"disconnected", "the connection was lost"}
	// ErrNoLeader: the member under a watch lost its cluster.
	ErrNoLeader error = &fault{"no_leader", "the cluster has no leader"}
	// ErrWentBack: the revision of the store is lower than it was: the store lost data.
	ErrWentBack error = &fault{"went_back", "the store is older than it was"}
	// ErrMissed: the store has changes that a watch should have delivered.
	ErrMissed error = &fault{"missed", "the watch missed a change"}
	// ErrNotLeading: the term is over: another process leads, or none.
	ErrNotLeading error = &fault{"not_leading", "this process is no longer the leader"}
)

// codeOf returns the gRPC code of an error of the client library.
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

// transient reports whether the same call may succeed when it is repeated.
func transient(err error) bool {
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// plainError has a text for users and wraps the error of the library.
type plainError struct {
	text  string
	cause error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.cause }

// plain removes the text that gRPC adds around a cause.
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
