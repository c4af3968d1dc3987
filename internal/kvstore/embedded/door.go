package embedded

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TLS names the files of PEM that a server needs to be reachable from other hosts.
type TLS struct {
	Cert, Key string // of the server
	// ClientCA is the authority whose certificates clients must show.
	ClientCA string
}

func (t TLS) complete() bool { return t.Cert != "" && t.Key != "" && t.ClientCA != "" }

func (t TLS) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.ClientCA, ClientCertAuth: t.complete()}
}

// onlyWrites lets remote clients write below the prefixes only, and do nothing to the
// server itself. What they read is not limited.
func onlyWrites(prefixes []string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if prefixes != nil && !permitted(req, info.FullMethod, prefixes) {
			return nil, status.Errorf(codes.PermissionDenied, "embedded etcd: clients may write below %s only", strings.Join(prefixes, ", "))
		}
		return next(ctx, req)
	}
}

// permitted reports whether a client may do what it asks for. What is not known is not
// permitted.
func permitted(req any, method string, prefixes []string) bool {
	below := func(key, end []byte) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(string(key), p) && (len(end) == 0 || string(end) <= prefixEnd(p) && string(end) != "\x00") {
				return true
			}
		}
		return false
	}
	switch r := req.(type) {
	case *etcdserverpb.RangeRequest, *etcdserverpb.StatusRequest, *etcdserverpb.MemberListRequest:
		return true
	case *etcdserverpb.PutRequest:
		return below(r.Key, nil)
	case *etcdserverpb.DeleteRangeRequest:
		return below(r.Key, r.RangeEnd)
	case *etcdserverpb.TxnRequest:
		return permittedAll(r.Success, method, prefixes) && permittedAll(r.Failure, method, prefixes)
	}
	// A lease is nothing without a key that is written with it.
	return strings.HasPrefix(method, "/etcdserverpb.Lease/LeaseGrant") || strings.HasPrefix(method, "/etcdserverpb.Lease/LeaseTimeToLive")
}

func permittedAll(ops []*etcdserverpb.RequestOp, method string, prefixes []string) bool {
	for _, op := range ops {
		var req any
		switch o := op.GetRequest().(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			req = o.RequestRange
		case *etcdserverpb.RequestOp_RequestPut:
			req = o.RequestPut
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			req = o.RequestDeleteRange
		case *etcdserverpb.RequestOp_RequestTxn:
			req = o.RequestTxn
		}
		if !permitted(req, method, prefixes) {
			return false
		}
	}
	return true
}

// prefixEnd returns the first key behind those with a prefix.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}
