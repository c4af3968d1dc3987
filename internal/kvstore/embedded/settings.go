package embedded

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/sluice-net/sluice/plugins/kvstore"
)

const (
	// The only member elects itself after the election timeout, so a short one is safe. With etcd's
	// defaults a start takes about a second.
	tickMs     = 10
	electionMs = 100

	// The reflected state of 100 000 pods takes some 50 MB; the rest is history.
	quotaBytes = 1 << 30
	// History lets lagging watches catch up; those that lag more must list again.
	historyKept = "5m"
	// Interval at which an idle watch receives the store's revision.
	progressInterval = 30 * time.Second

	memberName = "sluice"
	// identity is the advertised peer address of the member. etcd derives the names of the member
	// and the cluster from it, so it must not change across restarts.
	identity = "http://127.0.0.1:2380"
)

// settings returns the configuration of etcd. Remote clients come by the door, and their streams
// end with the context.
func settings(streams context.Context, cfg Config, temporary bool, d *door) (*embed.Config, error) {
	clients, err := listeners("client", cfg.ClientURL, cfg.TLS)
	if err != nil {
		return nil, err
	}
	peers, err := listeners("peer", cfg.PeerURL, TLS{})
	if err != nil {
		return nil, err
	}
	self, err := url.Parse(identity)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	ec := embed.NewConfig()
	ec.Name, ec.Dir = memberName, cfg.Dir
	ec.ListenClientUrls, ec.AdvertiseClientUrls = clients, clients
	ec.ListenPeerUrls, ec.AdvertisePeerUrls = peers, []url.URL{*self}
	ec.InitialCluster = ec.InitialClusterFromName(memberName)
	ec.TickMs, ec.ElectionMs = tickMs, electionMs
	ec.QuotaBackendBytes = cmp.Or(cfg.Quota, quotaBytes)
	ec.AutoCompactionMode, ec.AutoCompactionRetention = embed.CompactorModePeriodic, historyKept
	ec.WatchProgressNotifyInterval = progressInterval
	ec.EnableGRPCGateway = false
	ec.UnsafeNoFsync = temporary
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(kvstore.ZapLogger(cfg.Log))
	ec.ClientTLSInfo = cfg.TLS.info()
	ec.GRPCAdditionalServerOptions = []grpc.ServerOption{
		grpc.ChainStreamInterceptor(endWith(streams), d.stream), grpc.ChainUnaryInterceptor(d.unary),
	}
	return ec, nil
}

// listeners parses a URL to listen on; an empty one means no listener. Without TLS it must be
// loopback.
func listeners(what, text string, t TLS) ([]url.URL, error) {
	if text == "" {
		return []url.URL{}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %s URL: %w", what, err)
	}
	ip := net.ParseIP(u.Hostname())
	switch {
	case t.complete() && u.Scheme == "https" && ip != nil && u.Port() != "":
	case t != TLS{}:
		return nil, fmt.Errorf("embedded etcd: %s URL %q: want https://<IP>:<port> with a certificate, its key, and the authority of clients", what, text)
	case u.Scheme != "http" || ip == nil || !ip.IsLoopback() || u.Port() == "":
		return nil, fmt.Errorf("embedded etcd: %s URL %q: want http://127.0.0.1:<port>, it has neither TLS nor users", what, text)
	}
	return []url.URL{*u}, nil
}
