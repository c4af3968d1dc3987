package kvstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// login gives calls the token of a user. The library has this, too, but asks for the
// token when a client is made, so that there is no client without a store; and before
// that it would come as whoever the certificate of the connection names. Here the token
// is asked for by the first call that needs one.
//
// To check a password is slow on purpose, and a store whose agents all come at once, as
// after a restart, needs longer than any of their calls lasts. A question that is given
// up is answered all the same, so that asking again and again would keep the store from
// ever getting through: a question outlives the call that asked it, there is one at a
// time, and each that was given up gives the next one four times as long.
type login struct {
	name, password string
	patience       time.Duration // for the first question

	token atomic.Pointer[string]

	mu      sync.Mutex
	asked   *question     // that has no answer yet; nil for none
	timeout time.Duration // of the next question
	failure error         // of the last one; nil when it was answered
}

// maxLoginTime is the longest that a question may take: 1 000 agents that come at once
// keep two processors of a member busy for about 40 seconds.
const maxLoginTime = 2 * time.Minute

// question is what asks for a token. The others are set when done is closed.
type question struct {
	done  chan struct{}
	token *string
	err   error
}

func newLogin(name, password string, patience time.Duration) *login {
	return &login{name: name, password: password, patience: patience, timeout: patience}
}

// options make a connection use it.
func (l *login) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)}
}

// unary makes a call with a token, and once more with a new one when the store does not
// know it any more: it forgets them with time, with changes of its users, and when it
// starts again.
func (l *login) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == etcdserverpb.Auth_Authenticate_FullMethodName {
		return invoke(ctx, method, req, reply, conn, opts...)
	}
	token, err := l.current(ctx, conn, nil, opts)
	if err != nil {
		return err
	}
	err = invoke(withToken(ctx, token), method, req, reply, conn, opts...)
	if !refuses(err, token) {
		return err
	}
	if token, err = l.current(ctx, conn, token, opts); err != nil {
		return err
	}
	return invoke(withToken(ctx, token), method, req, reply, conn, opts...)
}

// stream begins a stream with a new token: a stream cannot be repeated here, and there
// are few.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.current(ctx, conn, l.token.Load(), opts)
	if err != nil {
		return nil, err
	}
	return begin(withToken(ctx, token), desc, conn, method, opts...)
}

// current returns the token, and waits for another when there is none but the refused
// one.
func (l *login) current(ctx context.Context, conn *grpc.ClientConn, refused *string, opts []grpc.CallOption) (*string, error) {
	if token := l.token.Load(); token != nil && token != refused {
		return token, nil
	}
	q := l.ask(ctx, conn, refused, opts)
	select {
	case <-q.done:
		return q.token, q.err
	case <-ctx.Done():
		return nil, l.late(ctx.Err())
	}
}

// late says that a call has ended before its question, and why the one before that failed.
func (l *login) late(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := status.FromContextError(err)
	if l.failure != nil {
		return status.Errorf(s.Code(), "%s; the last login: %v", s.Message(), l.failure)
	}
	return s.Err()
}

// ask returns the question that is under way, or begins one. It ends with the connection
// at the latest.
func (l *login) ask(ctx context.Context, conn *grpc.ClientConn, refused *string, opts []grpc.CallOption) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		return l.asked
	}
	q := &question{done: make(chan struct{})}
	if token := l.token.Load(); token != nil && token != refused { // it has just been answered
		q.token = token
		close(q.done)
		return q
	}
	l.asked = q
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
	patient := waiting(opts)
	go func() {
		defer cancel()
		defer close(q.done)
		q.token, q.err = l.authenticate(ctx, conn, patient)
		l.answered(q, conn.GetState())
	}()
	return q
}

// waiting returns what the options of a call say of waiting for a connection: the call
// that needs a token does as it is told. The others are its own, and end with it.
func waiting(opts []grpc.CallOption) (out []grpc.CallOption) {
	for _, o := range opts {
		if w, ok := o.(grpc.FailFastCallOption); ok {
			out = append(out, w)
		}
	}
	return out
}

func (l *login) authenticate(ctx context.Context, conn *grpc.ClientConn, opts []grpc.CallOption) (*string, error) {
	who := &etcdserverpb.AuthenticateRequest{Name: l.name, Password: l.password}
	resp, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, who, opts...)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		resp, err = &etcdserverpb.AuthenticateResponse{}, nil // it asks nobody who he is
	}
	if err != nil {
		return nil, err
	}
	return &resp.Token, nil
}

// answered lets the next question be asked. One that ran out of time although there was a
// connection was too short.
func (l *login) answered(q *question, state connectivity.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked, l.failure = nil, q.err
	switch {
	case q.err == nil:
		l.token.Store(q.token)
		l.timeout = l.patience
	case status.Code(q.err) == codes.DeadlineExceeded && state == connectivity.Ready:
		l.timeout = min(4*l.timeout, maxLoginTime)
	}
}

// withToken lets a call carry a token. One that is empty stands for a store without
// users.
func withToken(ctx context.Context, token *string) context.Context {
	if *token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token)
}

// refuses reports whether a call failed because the store wants another token. One that had
// no users, and has them now, takes a call without a token for that of the certificate's
// user.
func refuses(err error, token *string) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty) ||
		*token == "" && errors.Is(err, rpctypes.ErrPermissionDenied)
}
