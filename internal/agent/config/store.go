package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/internal/settings"
)

// Store says where the state of the cluster is, and where it is kept on the node.
type Store struct {
	Prefix         string        `koanf:"etcd-prefix"`
	Etcd           settings.Etcd `koanf:",squash"`
	StateFile      string        `koanf:"state-file"`
	StatusInterval time.Duration `koanf:"status-interval"`
}

// Where an agent keeps what the next start needs, unless it is told otherwise.
const (
	DefaultStateFile     = "/var/lib/sluice/agent/state"
	DefaultEndpointsFile = "/var/lib/sluice/agent/endpoints"
)

func prefixFlags(f *pflag.FlagSet) {
	f.String("etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
}

func storeFlags(f *pflag.FlagSet) {
	settings.EtcdFlags(f)
	f.String("state-file", DefaultStateFile, "file with the last known state, enforced when the agent starts and etcd does not answer; empty for none")
	f.Duration("status-interval", 10*time.Second, "how often the agent writes its status to etcd while there are many changes; a change after a quiet time is written at once; 0: never")
}

// Kept returns where the state is kept; nowhere when that is not possible, which is no reason not
// to enforce anything.
func (s Store) Kept(log *slog.Logger) string {
	if s.StateFile == "" {
		return ""
	}
	if err := os.MkdirAll(filepath.Dir(s.StateFile), 0o700); err != nil {
		log.Warn("state is not kept for a start without etcd", "setting", "--state-file", "error", err)
		return ""
	}
	return s.StateFile
}

func (s Store) preflight() []preflight.Check {
	return []preflight.Check{check("etcd settings", true, s.checkEtcd), check(StateFileCheck, false, s.checkStateFile)}
}

func (s Store) checkEtcd(context.Context) preflight.Finding {
	etcd, err := s.Etcd.Client()
	if err != nil {
		return preflight.Fail(err, "")
	}
	how := "without TLS"
	if etcd.TLS != nil {
		how = "with TLS"
	}
	return preflight.Fine("%s, %s", strings.Join(s.Etcd.Endpoints, ", "), how)
}

func (s Store) checkStateFile(context.Context) preflight.Finding {
	if s.StateFile == "" {
		return preflight.Fine("none: without etcd the agent starts with nothing")
	}
	if err := preflight.Folder(filepath.Dir(s.StateFile)); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w", err), "name a file in a folder where the agent may write; without it no state is there when etcd is not")
	}
	if err := preflight.Ours(s.StateFile); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w: it is not used", err), preflight.OursRemedy)
	}
	return preflight.Fine("%s", s.StateFile)
}
