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
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
)

// Store has the settings of etcd and of the state file.
type Store struct {
	Prefix         string        `koanf:"etcd-prefix"`
	Etcd           settings.Etcd `koanf:",squash"`
	StateFile      string        `koanf:"state-file"`
	StatusInterval time.Duration `koanf:"status-interval"`
}

// The default paths of what an agent keeps for its next start.
const (
	DefaultStateFile     = "/var/lib/sluice/agent/state"
	DefaultEndpointsFile = "/var/lib/sluice/agent/endpoints"
)

func prefixFlags(f *pflag.FlagSet) {
	f.String("etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
}

func storeFlags(f *pflag.FlagSet) {
	settings.EtcdFlags(f)
	f.String("state-file", DefaultStateFile, "file with the last known state, enforced when the agent starts while etcd does not answer; empty: none")
	f.Duration("status-interval", 10*time.Second, "shortest interval between two writes of the agent's status to etcd; the first change after a pause is written at once; 0: never")
}

// Kept returns the path of the state file. It is empty when its directory cannot be made: the agent
// then enforces without it.
func (s Store) Kept(log *slog.Logger) string {
	if s.StateFile == "" {
		return ""
	}
	if err := os.MkdirAll(filepath.Dir(s.StateFile), 0o700); err != nil {
		log.Warn("state file is off: a start without etcd has no state", "setting", "--state-file", "error", err)
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
		return preflight.Fine("none: the agent cannot start enforcing without etcd")
	}
	if err := preflight.Folder(filepath.Dir(s.StateFile)); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w", err), "name a file in a directory where the agent may write; without it the agent cannot enforce while etcd is down")
	}
	if err := preflight.Ours(s.StateFile); err != nil {
		return preflight.Warn(fmt.Errorf("--state-file: %w: it is not used", err), preflight.OursRemedy)
	}
	return preflight.Fine("%s", s.StateFile)
}
