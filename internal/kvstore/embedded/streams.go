package embedded

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// endWith ends every stream when the context ends. Otherwise the shutdown of the server would wait
// several seconds for watches, which never end by themselves.
func endWith(stop context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(stop, cancel)()
		err := next(srv, &endingStream{ServerStream: stream, ctx: ctx})
		if stop.Err() != nil {
			// Unavailable makes clients look for another server at once.
			return status.Error(codes.Unavailable, "the server is stopping")
		}
		return err
	}
}

// endingStream is a stream whose context ends earlier.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *endingStream) Context() context.Context { return s.ctx }

// stream is the interceptor for streams: watches, and renewals of leases.
func (d *door) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if d.prefixes == nil {
		return next(srv, s)
	}
	server, err := d.running()
	if err != nil {
		return err
	}
	switch info.FullMethod {
	case etcdserverpb.Watch_Watch_FullMethodName:
		return next(srv, s)
	case etcdserverpb.Lease_LeaseKeepAlive_FullMethodName:
		return next(srv, &renewals{s, d, server, addressOf(s.Context())})
	}
	return status.Error(codes.PermissionDenied, "embedded etcd: clients may watch, and renew leases only")
}

// renewals is a stream on which a client renews leases. Only one goroutine uses it.
type renewals struct {
	grpc.ServerStream
	door   *door
	server *etcdserver.EtcdServer
	client string
}

// RecvMsg implements grpc.ServerStream. What the client may not renew does not exist for it, as if
// it had expired. A client that asks too often gets no answer; its library asks again.
func (r *renewals) RecvMsg(m any) error {
	for {
		if err := r.ServerStream.RecvMsg(m); err != nil {
			return err
		}
		asked, ok := m.(*etcdserverpb.LeaseKeepAliveRequest)
		switch {
		case !ok:
			return status.Error(codes.Internal, "embedded etcd: the message is no renewal of a lease")
		case !r.door.budgets.spend(r.client, renewCost, time.Now()):
			continue
		case r.mayRenew(asked.ID):
			return nil
		}
		if err := r.SendMsg(&etcdserverpb.LeaseKeepAliveResponse{Header: &etcdserverpb.ResponseHeader{}, ID: asked.ID}); err != nil {
			return err
		}
	}
}

// mayRenew reports whether a client may keep a lease alive: only keys that clients may write are on
// it. Otherwise a client could keep the key of a leader that is gone.
func (r *renewals) mayRenew(id int64) bool {
	found, err := r.server.LeaseTimeToLive(r.Context(), &etcdserverpb.LeaseTimeToLiveRequest{ID: id, Keys: true})
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(found.Keys, func(key []byte) bool { return !below(r.door.prefixes, key, nil) })
}
