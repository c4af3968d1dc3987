package embedded

import (
	"context"

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
