package reflector

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
)

// Config holds the settings of sluice-ksr. They are read like those of the agent.
type Config struct {
	Kubeconfig     string        `koanf:"kubeconfig"`
	Etcd           settings.Etcd `koanf:",squash"`
	EtcdPrefix     string        `koanf:"etcd-prefix"`
	Cluster        string        `koanf:"cluster"`
	AcceptCluster  bool          `koanf:"accept-cluster"`
	Embedded       embeddedEtcd  `koanf:",squash"`
	Identity       string        `koanf:"identity"`
	LeaderTTL      time.Duration `koanf:"leader-ttl"`
	Silence        time.Duration `koanf:"api-silence"`
	Sweep          time.Duration `koanf:"sweep-interval"`
	ReportStatus   bool          `koanf:"report-status"`
	MetricsAddress string        `koanf:"metrics-address"`
	LogLevel       string        `koanf:"log-level"`
	LogFormat      string        `koanf:"log-format"`
	Traces         string        `koanf:"traces-endpoint"`
}

// embeddedEtcd configures etcd in this process, and how agents reach it.
type embeddedEtcd struct {
	Use      bool   `koanf:"embedded-etcd"`
	Dir      string `koanf:"etcd-dir"`
	Listen   string `koanf:"etcd-listen"`
	Cert     string `koanf:"etcd-listen-cert"`
	Key      string `koanf:"etcd-listen-key"`
	ClientCA string `koanf:"etcd-listen-ca"`
}

func addFlags(f *pflag.FlagSet) {
	f.String("config", "", "file with settings, YAML; keys are the names of flags")
	f.String("kubeconfig", "", "kubeconfig file for the API server; empty: use the service account of this pod")
	settings.EtcdFlags(f)
	f.String("etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	f.String("cluster", "", "name of the cluster for agents, which enforce the state of only one cluster; empty: the UID of the namespace kube-system")
	f.Bool("accept-cluster", false, "accept the state of this cluster although etcd holds that of another one, or agents know more objects; for one start")
	f.Bool("embedded-etcd", false, "run etcd in this process, for small clusters, instead of using --etcd-endpoints")
	f.String("etcd-dir", "/var/lib/sluice/etcd", "directory of the embedded etcd")
	f.String("etcd-listen", "http://127.0.0.1:2379", "where agents reach the embedded etcd; https://<IP>:<port> for other hosts, with the next three settings")
	f.String("etcd-listen-cert", "", "file with the certificate of the embedded etcd")
	f.String("etcd-listen-key", "", "file with the key of that certificate")
	f.String("etcd-listen-ca", "", "file with the authority that issues the client certificates for the embedded etcd")
	f.String("identity", "", "name of this replica in etcd and in logs; empty: the name of the host")
	f.Duration("leader-ttl", 5*time.Second, "how long a replica stays the leader after its last lease renewal")
	f.Duration("api-silence", 20*time.Second, "how long the API server may fail to answer before a replica gives up leadership")
	f.Duration("sweep-interval", reflect.DefaultSweep, "interval at which the content of etcd is compared with the cluster even without failures")
	f.Bool("report-status", true, "write the conditions Accepted and Enforced of ClusterNetworkPolicies; without the right to do so nothing is written")
	f.String("metrics-address", "127.0.0.1:9416", "host:port of /metrics, /livez and /readyz; without a host on loopback; empty: none")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("traces-endpoint", "", tracing.Usage)
}

// check sets defaults and validates the settings.
func (c *Config) check() error {
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--identity is empty, and the host has no name: %w", err)
		}
		c.Identity = host
	}
	var errs []error
	if len(c.Cluster) > model.MaxName {
		errs = append(errs, fmt.Errorf("--cluster has %d bytes: want at most %d", len(c.Cluster), model.MaxName))
	}
	if c.LeaderTTL < time.Second {
		errs = append(errs, fmt.Errorf("--leader-ttl %s: want at least a second", c.LeaderTTL))
	}
	if c.Silence < time.Second {
		errs = append(errs, fmt.Errorf("--api-silence %s: want at least a second", c.Silence))
	}
	if c.Sweep < time.Second {
		errs = append(errs, fmt.Errorf("--sweep-interval %s: want at least a second", c.Sweep))
	}
	if c.Embedded.Use && c.Embedded.Dir == "" {
		errs = append(errs, errors.New("--etcd-dir is needed with --embedded-etcd: state that is lost with the process takes its protection away"))
	}
	if !c.Embedded.Use {
		_, err := c.Etcd.Client()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
