package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer/acl"
)

// EnvPrefix begins the environment variables of the settings: --api-socket is
// SLUICE_API_SOCKET.
const EnvPrefix = "SLUICE_"

// Config holds the settings of an agent. Each has a flag of its key's name, an
// environment variable, and a key in the file of --config; a flag wins over the
// environment, that over the file, that over the default.
type Config struct {
	Node             string        `koanf:"node"`
	NodeAddresses    []string      `koanf:"node-address"`
	AllowNodeTraffic bool          `koanf:"allow-node-traffic"`
	EtcdEndpoints    []string      `koanf:"etcd-endpoints"`
	EtcdPrefix       string        `koanf:"etcd-prefix"`
	EtcdCA           string        `koanf:"etcd-ca"`
	EtcdCert         string        `koanf:"etcd-cert"`
	EtcdKey          string        `koanf:"etcd-key"`
	EtcdUser         string        `koanf:"etcd-user"`
	EtcdPassword     string        `koanf:"etcd-password"`
	EtcdDir          string        `koanf:"etcd-dir"`
	VPPSocket        string        `koanf:"vpp-socket"`
	VPPStatsSocket   string        `koanf:"vpp-stats-socket"`
	VPPTimeout       time.Duration `koanf:"vpp-timeout"`
	ACLTarget        string        `koanf:"acl-target"`
	LigatoLabel      string        `koanf:"ligato-label"`
	LigatoPrefix     string        `koanf:"ligato-prefix"`
	LigatoInterface  string        `koanf:"ligato-interface"`
	Uplinks          []string      `koanf:"uplink"`
	HoldUnknownPods  bool          `koanf:"hold-unknown-pods"`
	Established      string        `koanf:"established"`
	ACLOrientation   string        `koanf:"acl-orientation"`
	Grace            time.Duration `koanf:"grace"`
	UDPIdle          time.Duration `koanf:"udp-idle-timeout"`
	Infra            []string      `koanf:"infra"`
	ACLMemory        uint32        `koanf:"acl-memory"`
	APISocket        string        `koanf:"api-socket"`
	MetricsAddress   string        `koanf:"metrics-address"`
	RuleMetrics      bool          `koanf:"rule-metrics"`
	LogLevel         string        `koanf:"log-level"`
	LogFormat        string        `koanf:"log-format"`
	LogVerdicts      string        `koanf:"log-verdicts"`
	Manifests        string        `koanf:"manifests"`
	AcceptLegacy     bool          `koanf:"accept-legacy"`
	VswitchSocket    string        `koanf:"vswitch-socket"`
	Once             bool          `koanf:"once"`
}

// commonFlags are those of every command of the agent.
func commonFlags(f *pflag.FlagSet) {
	f.String("config", "", "file with settings, YAML; keys are the names of flags")
	f.String("node", "", "name of this node: pods with this spec.nodeName are local")
	f.StringSlice("node-address", nil, "further addresses of this node, which its pods may always talk to")
	f.Bool("allow-node-traffic", true, "permit traffic between a pod and its own node whatever policies say")
	f.String("etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	f.StringSlice("uplink", nil, "names of interfaces that lead out of the node, beside those with the uplink tag")
	f.String("acl-orientation", acl.Outputs.String(), "where packets meet the rules for what pods send: outputs, where they leave VPP, or split, at the pod's own interface, "+
		"where VPP translates sources ahead of outputs; split needs --established=keep")
	f.String("established", acl.Revoke.String(), "open flows that policy no longer permits: revoke cuts them, keep lets them end; the same on all nodes")
	f.StringSlice("infra", []string{infraNeighbours, infraErrors}, "what passes whatever policies say: neighbours, icmp-errors, and addresses or CIDRs that talk with every pod")
	f.Duration("vpp-timeout", 5*time.Second, "how long one call to the dataplane may take")
	f.Uint32("acl-memory", 0, "MiB of the vswitch's memory that ACLs may take; what does not fit is refused; 0 asks VPP how much it has")
	f.String("api-socket", view.DefaultSocket(), "Unix socket of the debug API")
	f.String("metrics-address", "", "host:port of /metrics, /livez and /readyz over TCP; empty for the debug API only")
	f.Bool("rule-metrics", false, "a metric for each rule of each policy: what it decided; their number is not bounded")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("log-verdicts", verdictsNone, "log every second what rules decided: none, deny or all (at level info; where the dataplane counts)")
}

// What --log-verdicts can be.
const (
	verdictsNone = "none"
	verdictsDeny = "deny"
	verdictsAll  = "all"
)

func runFlags(f *pflag.FlagSet) {
	f.StringSlice("etcd-endpoints", []string{"127.0.0.1:2379"}, "members of the etcd cluster")
	f.String("etcd-ca", "", "file with the certificates that etcd's certificate is checked against (turns TLS on)")
	f.String("etcd-cert", "", "file with the client certificate for etcd")
	f.String("etcd-key", "", "file with the key of the client certificate")
	f.String("etcd-user", "", "user name for etcd")
	f.String("etcd-password", "", "password for etcd (better: SLUICE_ETCD_PASSWORD)")
	f.String("vpp-socket", "/run/vpp/api.sock", "Unix socket of VPP's binary API")
	f.String("vpp-stats-socket", "/run/vpp/stats.sock", "socket of VPP's statistics segment, for the hits of rules; empty: they are not counted")
	ligatoFlags(f)
	f.Bool("hold-unknown-pods", true, "close interfaces of pods until their pod is known, so that it sends and gets nothing before its policy is enforced")
	f.Duration("grace", 5*time.Minute, "for how long after VPP's start pods may go on with flows that they had opened before; 0 for not at all")
	f.Duration("udp-idle-timeout", 0, "when VPP forgets a flow of UDP without packets; 0 leaves VPP's setting, which is 10 minutes")
}

func devFlags(f *pflag.FlagSet) {
	f.String("manifests", "", "directory of Kubernetes manifests to reflect and to follow")
	f.Bool("accept-legacy", false, "also read policies of extensions/v1beta1 and the annotation that isolates a namespace, as before Kubernetes 1.7")
	f.String("etcd-dir", "", "directory of the embedded etcd; empty for a temporary one")
	f.String("vswitch-socket", "", "also serve the embedded dataplane's VPP binary API on this Unix socket")
	f.Bool("once", false, "print the report and end")
}

// loadConfig reads the settings from the file, the environment and the flags.
func loadConfig(flags *pflag.FlagSet, environ []string) (Config, error) {
	k := koanf.New("\x00") // keys are flat; no delimiter occurs in them
	if path := configPath(flags, environ); path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return Config{}, fmt.Errorf("settings in %s: %w", path, err)
		}
		if err := checkKeys(k.Keys(), flags, path); err != nil {
			return Config{}, err
		}
	}
	fromEnv := env.Provider("\x00", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(key, value string) (string, any) {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, EnvPrefix)), "_", "-")
			f := flags.Lookup(name)
			switch {
			case f == nil:
				return "", nil // another program's variable
			case f.Value.Type() == "stringSlice":
				return name, splitList(value)
			}
			return name, value
		},
	})
	if err := k.Load(fromEnv, nil); err != nil {
		return Config{}, fmt.Errorf("settings in the environment: %w", err)
	}
	if err := k.Load(posflag.Provider(flags, "\x00", k), nil); err != nil {
		return Config{}, fmt.Errorf("settings in flags: %w", err)
	}
	var c Config
	if err := k.Unmarshal("", &c); err != nil {
		return Config{}, fmt.Errorf("settings: %w", err)
	}
	return c, nil
}

// configPath returns the path of the file with settings: that of --config, or of its
// environment variable.
func configPath(flags *pflag.FlagSet, environ []string) string {
	if path, _ := flags.GetString("config"); path != "" {
		return path
	}
	for _, v := range environ {
		if path, ok := strings.CutPrefix(v, EnvPrefix+"CONFIG="); ok {
			return path
		}
	}
	return ""
}

// splitList reads a list of an environment variable; an empty one has no items.
func splitList(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// checkKeys refuses settings that do not exist: a typo must not be a silent default.
func checkKeys(keys []string, flags *pflag.FlagSet, path string) error {
	var errs []error
	for _, key := range keys {
		if flags.Lookup(key) == nil || key == "config" {
			errs = append(errs, fmt.Errorf("settings in %s: unknown key %q; the keys are %s", path, key, strings.Join(flagNames(flags), ", ")))
		}
	}
	return errors.Join(errs...)
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	return names
}

// logLevel reads the level of the log.
func (c Config) logLevel() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return 0, fmt.Errorf("--log-level %q: want debug, info, warn or error", c.LogLevel)
	}
	return level, nil
}

// nodeAddresses reads the further addresses of the node.
func (c Config) nodeAddresses() ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range c.NodeAddresses {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("--node-address %q is not an IP address", s)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}
