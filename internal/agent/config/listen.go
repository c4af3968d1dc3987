package config

import (
	"context"
	"fmt"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/preflight"
	"github.com/sluice-net/sluice/internal/view"
)

// Listen has the settings of the agent's API and metrics servers.
type Listen struct {
	APISocket      string `koanf:"api-socket"`
	APIGroup       string `koanf:"api-group"`
	MetricsAddress string `koanf:"metrics-address"`
	RuleMetrics    bool   `koanf:"rule-metrics"`
}

func listenFlags(f *pflag.FlagSet) {
	f.String("api-socket", view.DefaultSocket(), "Unix socket of the debug API")
	f.String("api-group", "", "group whose members may read through the socket; empty: only root and the agent's own user")
	f.String("metrics-address", "", "host:port of /metrics, /livez and /readyz over TCP; without a host: loopback; empty: the debug API only")
	f.Bool("rule-metrics", false, "export a metric for each rule of each policy; the number of series is unbounded")
}

// Group returns the number of the group whose members may use the socket, or socket.NoGroup.
func (l Listen) Group() (int, error) {
	if l.APIGroup == "" {
		return socket.NoGroup, nil
	}
	text := l.APIGroup
	if g, err := user.LookupGroup(text); err == nil {
		text = g.Gid
	}
	id, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return socket.NoGroup, fmt.Errorf("--api-group %q is neither a group of this host nor a number", l.APIGroup)
	}
	return int(id), nil
}

func (l Listen) preflight() []preflight.Check {
	out := []preflight.Check{check("api socket", true, l.checkSocket)}
	if l.MetricsAddress == "" {
		return out
	}
	return append(out, check("metrics address", true, func(ctx context.Context) preflight.Finding {
		if err := preflight.Address(ctx, l.MetricsAddress); err != nil {
			return preflight.Fail(fmt.Errorf("--metrics-address: %w", err), "choose another host:port")
		}
		return preflight.Fine("%s", l.MetricsAddress)
	}))
}

func (l Listen) checkSocket(ctx context.Context) preflight.Finding {
	if _, err := l.Group(); err != nil {
		return preflight.Fail(err, "")
	}
	if _, err := socket.Leftover(ctx, l.APISocket); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), socket.Remedy)
	}
	if err := preflight.Ours(l.APISocket); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), preflight.OursRemedy)
	}
	if err := preflight.Folder(filepath.Dir(l.APISocket)); err != nil {
		return preflight.Fail(fmt.Errorf("--api-socket: %w", err), "choose another path, or start the agent as a user who may write there")
	}
	return preflight.Fine("%s", l.APISocket)
}
