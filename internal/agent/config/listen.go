package config

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/ui"
	"github.com/sluice-net/sluice/internal/view"
)

// Listen has the settings of the agent's API and metrics servers.
type Listen struct {
	APISocket      string `koanf:"api-socket"`
	APIGroup       string `koanf:"api-group"`
	MetricsAddress string `koanf:"metrics-address"`
	RuleMetrics    bool   `koanf:"rule-metrics"`

	UIAddress   string   `koanf:"ui-address"`
	UITokenFile string   `koanf:"ui-token-file"`
	UIHosts     []string `koanf:"ui-hosts"`
}

func listenFlags(f *pflag.FlagSet) {
	f.String("api-socket", view.DefaultSocket(), "Unix socket of the debug API")
	f.String("api-group", "", "group whose members may read through the socket; empty: only root and the agent's own user")
	f.String("metrics-address", "", "host:port of /metrics, /livez and /readyz over TCP; without a host: loopback; empty: the debug API only")
	f.String("ui-address", "", "host:port of the page of sluicectl ui over TCP, read-only, without encryption; without a host: loopback; empty: on the socket only; needs --ui-token-file")
	f.String("ui-token-file", "", "file with the token that clients of --ui-address have to know, at least 24 characters")
	f.StringSlice("ui-hosts", nil, "names by which browsers may reach --ui-address, besides localhost and addresses")
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

// UIToken reads the token of --ui-address.
func (l Listen) UIToken() (string, error) {
	if l.UITokenFile == "" {
		return "", errors.New("--ui-address needs --ui-token-file: what it serves names pods and policies")
	}
	f, err := os.Open(l.UITokenFile)
	if err != nil {
		return "", fmt.Errorf("--ui-token-file: %w", err)
	}
	content, err := io.ReadAll(io.LimitReader(f, mostToken))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("--ui-token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if err := ui.CheckToken(token); err != nil {
		return "", fmt.Errorf("--ui-token-file %s: %w", l.UITokenFile, err)
	}
	return token, nil
}

// mostToken bounds the file of a token, in bytes.
const mostToken = 4096

func (l Listen) preflight() []preflight.Check {
	out := []preflight.Check{check("api socket", true, l.checkSocket)}
	if l.UIAddress != "" {
		out = append(out, check("ui address", true, l.checkUI))
	}
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

func (l Listen) checkUI(ctx context.Context) preflight.Finding {
	if _, err := l.UIToken(); err != nil {
		return preflight.Fail(err, "write one with: openssl rand -hex 32")
	}
	if err := preflight.Address(ctx, l.UIAddress); err != nil {
		return preflight.Fail(fmt.Errorf("--ui-address: %w", err), "choose another host:port")
	}
	return preflight.Fine("%s", l.UIAddress)
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
