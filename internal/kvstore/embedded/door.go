package embedded

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// TLS names the PEM files that a server needs to be reachable from other hosts.
type TLS struct {
	Cert, Key string // of the server
	// ClientCA is the authority that must have issued the clients' certificates.
	ClientCA string
}

func (t TLS) complete() bool { return t.Cert != "" && t.Key != "" && t.ClientCA != "" }

func (t TLS) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: t.Cert, KeyFile: t.Key, TrustedCAFile: t.ClientCA, ClientCertAuth: t.complete()}
}

// What remote clients may write, so that the store has room for what this process writes: the keys
// take at most 256 MiB of the quota, and their history, by the rates of a budget, another 200 MiB.
const (
	maxKeys    = 4096     // below all prefixes together; more are written only by this process
	maxRequest = 64 << 10 // bytes of a write
	// maxTTL is the life of a lease that is not renewed, in seconds.
	maxTTL = 120
)

// door restricts remote clients to writes below the prefixes, without administrative operations.
// Reads are not restricted. This process does not come by it.
type door struct {
	prefixes []string // nil: clients may do everything
	budgets  budgets
	server   atomic.Pointer[etcdserver.EtcdServer] // nil until it runs
}

// running returns the server behind the door.
func (d *door) running() (*etcdserver.EtcdServer, error) {
	if server := d.server.Load(); server != nil {
		return server, nil
	}
	return nil, status.Error(codes.Unavailable, "the server is starting")
}

// unary is the interceptor for requests.
func (d *door) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if d.prefixes == nil {
		return next(ctx, req)
	}
	if !permitted(req, info.FullMethod, d.prefixes) {
		return nil, status.Errorf(codes.PermissionDenied, "embedded etcd: clients may write below %s only", strings.Join(d.prefixes, ", "))
	}
	cost, puts := 0, [][]byte(nil)
	if lease, ok := req.(*etcdserverpb.LeaseGrantRequest); ok {
		lease.TTL = min(lease.TTL, maxTTL) // the answer names it
		cost = leaseCost
	} else {
		var deletes int
		if puts, deletes = writes(req); len(puts)+deletes > 0 {
			cost = sizeOf(req) + (len(puts)+deletes)*writeCost
		}
		if cost > 0 && sizeOf(req) > maxRequest {
			return nil, status.Errorf(codes.InvalidArgument, "embedded etcd: a write of %d bytes: clients may write %d at once", sizeOf(req), maxRequest)
		}
	}
	if cost > 0 && !d.budgets.spend(addressOf(ctx), cost, time.Now()) {
		return nil, status.Error(codes.ResourceExhausted, "embedded etcd: this client writes too much, or all together do")
	}
	if err := d.fits(ctx, puts); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// sizeOf returns how many bytes a request takes in etcd's log.
func sizeOf(req any) int {
	m, ok := req.(proto.Message)
	if !ok {
		return maxRequest + 1
	}
	return proto.Size(m)
}

// fits reports whether there may be these keys. Who has a key may write it.
func (d *door) fits(ctx context.Context, puts [][]byte) error {
	if len(puts) == 0 {
		return nil
	}
	keys := int64(len(puts))
	for _, p := range d.prefixes {
		n, err := d.count(ctx, []byte(p), []byte(prefixEnd(p)))
		if err != nil {
			return err
		}
		keys += n
	}
	for _, key := range puts {
		if keys <= maxKeys {
			break
		}
		if n, err := d.count(ctx, key, nil); err != nil {
			return err
		} else if n == 0 {
			return status.Errorf(codes.ResourceExhausted, "embedded etcd: clients have %d keys, and may have no more", maxKeys)
		}
	}
	return nil
}

// count returns how many keys exist from one key to another, or at one key.
func (d *door) count(ctx context.Context, from, end []byte) (int64, error) {
	server, err := d.running()
	if err != nil {
		return 0, err
	}
	r, err := server.Range(ctx, &etcdserverpb.RangeRequest{Key: from, RangeEnd: end, CountOnly: true, Serializable: true})
	if err != nil {
		return 0, err
	}
	return r.Count, nil
}

// writes returns the keys that a permitted request puts, and how many of its parts delete.
func writes(req any) (puts [][]byte, deletes int) {
	switch r := req.(type) {
	case *etcdserverpb.PutRequest:
		return [][]byte{r.Key}, 0
	case *etcdserverpb.DeleteRangeRequest:
		return nil, 1
	case *etcdserverpb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			p, n := writes(operation(op))
			puts, deletes = append(puts, p...), deletes+n
		}
	}
	return puts, deletes
}

// operation returns the request in a part of a transaction; nil when it is not known.
func operation(op *etcdserverpb.RequestOp) any {
	switch o := op.GetRequest().(type) {
	case *etcdserverpb.RequestOp_RequestRange:
		return o.RequestRange
	case *etcdserverpb.RequestOp_RequestPut:
		return o.RequestPut
	case *etcdserverpb.RequestOp_RequestDeleteRange:
		return o.RequestDeleteRange
	case *etcdserverpb.RequestOp_RequestTxn:
		return o.RequestTxn
	}
	return nil
}

// permitted reports whether a client may make a request. Unknown requests are not permitted.
func permitted(req any, method string, prefixes []string) bool {
	switch r := req.(type) {
	case *etcdserverpb.RangeRequest, *etcdserverpb.StatusRequest, *etcdserverpb.MemberListRequest:
		return true
	case *etcdserverpb.PutRequest:
		return below(prefixes, r.Key, nil)
	case *etcdserverpb.DeleteRangeRequest:
		return below(prefixes, r.Key, r.RangeEnd)
	case *etcdserverpb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if !permitted(operation(op), method, prefixes) {
				return false
			}
		}
		return true
	}
	// A lease has no effect without a key that is written with it.
	return strings.HasPrefix(method, "/etcdserverpb.Lease/LeaseGrant") || strings.HasPrefix(method, "/etcdserverpb.Lease/LeaseTimeToLive")
}

// below reports whether keys are below one of the prefixes: one key, or those up to an end.
func below(prefixes []string, key, end []byte) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return strings.HasPrefix(string(key), p) && (len(end) == 0 || string(end) <= prefixEnd(p) && string(end) != "\x00")
	})
}

// prefixEnd returns the first key after those with a prefix.
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
