// Package etcd runs clusters of real etcd members for tests. Every member is a process
// of its own, so that it can be killed: the test binary, started again.
package etcd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/sluice-net/sluice/plugins/kvstore"
)

// memberEnv makes a process a member; its value is which.
const memberEnv = "SLUICE_TEST_ETCD_MEMBER"

// settings of a member, as JSON in its environment.
type settings struct {
	Name, Dir, Client, Cluster string
	Cert, Key, CA              string // of PEM files; empty without TLS
	Quota                      int64  // bytes; 0 for etcd's own
	Sync                       bool
	Bcrypt                     uint
}

// Main is to be called first by TestMain: in a process that is a member or a proxy it
// serves, and does not return.
func Main() {
	if addresses := os.Getenv(proxyEnv); addresses != "" {
		serveProxy(addresses)
	}
	text := os.Getenv(memberEnv)
	if text == "" {
		return
	}
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(serve(s))
}

// serve runs a member until the standard input ends, which it does with the test.
func serve(s settings) int {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = s.Name, s.Dir, s.Cluster
	cfg.UnsafeNoFsync, cfg.EnableGRPCGateway = !s.Sync, false
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.QuotaBackendBytes = s.Quota
	cfg.BcryptCost = cmp.Or(s.Bcrypt, cfg.BcryptCost)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(kvstore.ZapLogger(slog.New(slog.DiscardHandler)))
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: s.Client}}
	if s.CA != "" {
		cfg.ListenClientUrls[0].Scheme = "https"
		cfg.ClientTLSInfo = transport.TLSInfo{CertFile: s.Cert, KeyFile: s.Key, TrustedCAFile: s.CA, ClientCertAuth: true}
	}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	for member := range strings.SplitSeq(s.Cluster, ",") {
		if peer, ok := strings.CutPrefix(member, s.Name+"=http://"); ok {
			cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peer}}
			cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
		}
	}
	if _, err := embed.StartEtcd(cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
