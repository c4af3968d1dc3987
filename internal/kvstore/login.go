package kvstore

import (
	"context"
	"errors"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// login gives calls the token of a user. The library has this, too, but asks for the
// token when a client is made, so that there is no client without a store; and before
// that it would come as whoever the certificate of the connection names. Here the token
// is asked for by the first call that needs one.
type login struct {
	name, password string

	turn  chan struct{} // held by who asks for a token
	token atomic.Pointer[string]
}

func newLogin(name, password string) *login {
	return &login{name: name, password: password, turn: make(chan struct{}, 1)}
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

// current returns the token, and asks for one when there is none but the refused one,
// with the options of the call that needs it: some do not wait for a connection.
func (l *login) current(ctx context.Context, conn *grpc.ClientConn, refused *string, opts []grpc.CallOption) (*string, error) {
	if token := l.token.Load(); token != nil && token != refused {
		return token, nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if token := l.token.Load(); token != nil && token != refused {
		return token, nil // another call has asked
	}
	who := &etcdserverpb.AuthenticateRequest{Name: l.name, Password: l.password}
	resp, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, who, opts...)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrAuthNotEnabled) {
		resp, err = &etcdserverpb.AuthenticateResponse{}, nil // it asks nobody who he is
	}
	if err != nil {
		return nil, err
	}
	l.token.Store(&resp.Token)
	return &resp.Token, nil
}

// withToken lets a call carry a token. One that is empty stands for a store without
// users.
func withToken(ctx context.Context, token *string) context.Context {
	if *token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, *token)
}

// refuses says whether a call failed because the store wants another token. One that had
// no users, and has them now, takes a call without a token for that of the certificate's
// user.
func refuses(err error, token *string) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) || errors.Is(err, rpctypes.ErrUserEmpty) ||
		*token == "" && errors.Is(err, rpctypes.ErrPermissionDenied)
}
