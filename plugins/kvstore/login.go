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

// login adds the token of a user to calls. The library can do this, too, but it requests the token
// when a client is created, so that there is no client without a reachable store; before that it
// would act as the user of the connection's certificate. Here the first call that needs a token
// requests it.
//
// Checking a password is slow on purpose. When all agents log in at once, as after a restart, the
// store needs longer than any of their calls lasts. The store answers abandoned requests
// nevertheless, so repeating them would keep it overloaded. Therefore a request outlives the call
// that started it, only one is active at a time, and after each abandoned one the next may take
// four times as long.
type login struct {
	name, password string
	patience       time.Duration // for the first request

	token atomic.Pointer[string]

	mu      sync.Mutex
	asked   *question     // without an answer yet; nil for none
	timeout time.Duration // of the next request
	failure error         // of the last request; nil if it was answered
}

// maxLoginTime is the longest that a request may take: 1 000 agents that log in at once keep two
// processors of a member busy for about 40 seconds.
const maxLoginTime = 2 * time.Minute

// question is a request for a token. The other fields are set when done is closed.
type question struct {
	done  chan struct{}
	token *string
	err   error
}

func newLogin(name, password string, patience time.Duration) *login {
	return &login{name: name, password: password, patience: patience, timeout: patience}
}

// options return the options with which a connection uses the login.
func (l *login) options() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.unary), grpc.WithChainStreamInterceptor(l.stream)}
}

// unary makes a call with a token, and repeats it once with a new one if the store no longer
// accepts it: the store drops tokens after some time, when its users change, and when it restarts.
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

// stream begins a stream with a new token: a stream cannot be repeated here, and there are few.
func (l *login) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	token, err := l.current(ctx, conn, l.token.Load(), opts)
	if err != nil {
		return nil, err
	}
	return begin(withToken(ctx, token), desc, conn, method, opts...)
}

// current returns the token; it waits for another if there is none except the refused one.
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

// late returns the error of a call that ended before its request for a token, with the cause of the
// last failed request.
func (l *login) late(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := status.FromContextError(err)
	if l.failure != nil {
		return status.Errorf(s.Code(), "%s; the last login: %v", s.Message(), l.failure)
	}
	return s.Err()
}

// ask returns the active request, or begins one. It ends with the connection at the latest.
func (l *login) ask(ctx context.Context, conn *grpc.ClientConn, refused *string, opts []grpc.CallOption) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		return l.asked
	}
	q := &question{done: make(chan struct{})}
	// it was answered in the meantime
	if token := l.token.Load(); token != nil && token != refused {
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

// waiting returns the options of a call that control waiting for a connection. The request for a
// token uses them; the other options belong to the call, and end with it.
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
		resp, err = &etcdserverpb.AuthenticateResponse{}, nil // it requires no login
	}
	if err != nil {
		return nil, err
	}
	return &resp.Token, nil
}

// answered allows the next request. A request that timed out although there was a connection had
// too little time.
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

// withToken adds a token to a call. An empty token means that the store has no users.
func withToken(ctx context.Context, token *string) context.Context {
	if *token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token)
}

// refuses reports whether a call failed because the store wants another token. A store that got its
// first users treats a call without a token as one by the certificate's user.
func refuses(err error, token *string) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty) ||
		*token == "" && errors.Is(err, rpctypes.ErrPermissionDenied)
}
