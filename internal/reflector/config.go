package reflector

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
)

// Config holds the settings of sluice-ksr, read as those of the agent are.
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
	MetricsAddress string        `koanf:"metrics-address"`
	LogLevel       string        `koanf:"log-level"`
	LogFormat      string        `koanf:"log-format"`
}

// embeddedEtcd reports whether the etcd is in this process, and how agents reach it.
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
	f.String("kubeconfig", "", "file that says where the API server is; empty: this is a pod of the cluster")
	settings.EtcdFlags(f)
	f.String("etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	f.String("cluster", "", "name of the cluster for agents, which enforce the state of one cluster only; empty: the UID of the namespace kube-system")
	f.Bool("accept-cluster", false, "the state of this cluster is meant, although etcd holds that of another one, or agents know more objects; for one start")
	f.Bool("embedded-etcd", false, "run the etcd in this process, for small clusters, instead of using one at --etcd-endpoints")
	f.String("etcd-dir", "/var/lib/sluice/etcd", "directory of the embedded etcd")
	f.String("etcd-listen", "http://127.0.0.1:2379", "where agents reach the embedded etcd; https://<IP>:<port> for other hosts, with the three settings that follow")
	f.String("etcd-listen-cert", "", "file with the certificate of the embedded etcd")
	f.String("etcd-listen-key", "", "file with the key of that certificate")
	f.String("etcd-listen-ca", "", "file with the authority whose certificates clients of the embedded etcd must show")
	f.String("identity", "", "who this replica is, in etcd and in logs; the name of the host when empty")
	f.Duration("leader-ttl", 5*time.Second, "how long after its last sign of life a replica still counts as the leader")
	f.Duration("api-silence", 20*time.Second, "after how long without an answer of the API server a replica stops leading")
	f.Duration("sweep-interval", reflect.DefaultSweep, "how often all that etcd holds is compared with the cluster although nothing went wrong")
	f.String("metrics-address", "127.0.0.1:9416", "host:port of /metrics, /livez and /readyz; without a host on loopback; empty for none")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
}

// check completes the settings and says what is wrong with them.
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
