package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/secgroup/neutron"
)

// Neutron has the settings of sluice-neutron.
type Neutron struct {
	Cloud         string        `koanf:"os-cloud"`
	CloudsFile    string        `koanf:"os-clouds-file"`
	URL           string        `koanf:"neutron-url"`
	Mark          string        `koanf:"neutron-mark"`
	Networks      []string      `koanf:"neutron-network"`
	DefaultGroups []string      `koanf:"neutron-default-group"`
	PortsBy       string        `koanf:"neutron-ports-by"`
	AddressGroups bool          `koanf:"neutron-address-groups"`
	MaxRules      int           `koanf:"neutron-max-rules"`
	Timeout       time.Duration `koanf:"neutron-timeout"`
	Refresh       time.Duration `koanf:"neutron-refresh"`
	Identity      string        `koanf:"identity"`
	LeaderTTL     time.Duration `koanf:"leader-ttl"`
}

// Values of --neutron-ports-by.
const (
	PortsByAddress = "address"
	PortsByName    = "name"
	PortsByDevice  = "device"
	PortsByTag     = "tag"
)

// DefaultNeutronSocket is the socket of the debug API of sluice-neutron.
const DefaultNeutronSocket = "/run/sluice/neutron.sock"

// RendererSecgroup is the only renderer of sluice-neutron.
const RendererSecgroup = "secgroup"

// NeutronFlags are the flags of sluice-neutron.
func NeutronFlags(f *pflag.FlagSet) {
	f.String("config", "", "file with settings, YAML; keys are the names of flags")
	prefixFlags(f)
	settings.EtcdFlags(f)
	f.String("api-socket", DefaultNeutronSocket, "Unix socket of the debug API, for sluicectl --socket; it is there while this replica leads")
	f.String("api-group", "", "group whose members may read through the socket; empty: only root and the own user")
	f.String("metrics-address", "", "host:port of /metrics, /livez and /readyz over TCP; without a host: loopback; empty: the debug API only")
	f.Bool("rule-metrics", false, "export a metric for each rule of each policy; the number of series is unbounded")
	f.String("log-level", "info", "debug, info, warn or error")
	f.String("log-format", "text", "text or json")
	f.String("traces-endpoint", "", tracing.Usage)
	f.Bool("allow-node-traffic", true, "permit traffic between a pod and its own node whatever the policies")
	f.StringSlice("exempt-traffic", nil, "addresses and CIDRs that may talk to every pod whatever the policies")
	f.String("os-cloud", "", "name of the cloud in clouds.yaml; empty: OS_CLOUD")
	f.String("os-clouds-file", "", "path of clouds.yaml; empty: ./clouds.yaml, ~/.config/openstack and /etc/openstack")
	f.String("neutron-url", "", "URL of a Neutron without Keystone, instead of --os-cloud")
	f.String("neutron-mark", "kubernetes", "part of the names of this cluster's security groups; clusters in one project need different ones")
	f.StringSlice("neutron-network", nil, "IDs of the networks in which pods have ports; none: all ports that the project may see, whose addresses must then be unique")
	f.StringSlice("neutron-default-group", nil, "IDs of the security groups of pods without policy, and of ports of ended pods; none: groups of Sluice, which permit everything to the former and nothing to the latter")
	f.String("neutron-ports-by", PortsByAddress, "what makes a port that of a pod: address (a fixed address of the pod), or namespace/name of the pod as the name or the device of the port, or in a tag pod=namespace/name")
	f.Bool("neutron-address-groups", false, "make sets of addresses address groups; only where Neutron's backend implements them: ML2/OVN before 2023.1 permits every address instead")
	f.Int("neutron-max-rules", secgroup.DefaultMaxRules, "largest number of rules of a security group; a direction of a pod that needs more than half of it is blocked")
	f.Duration("neutron-timeout", neutron.DefaultTimeout, "timeout of one call to Neutron")
	f.Duration("neutron-refresh", 5*time.Minute, "interval at which all groups and ports are read again, to repair changes by others")
	f.String("identity", "", "name of this replica in etcd and in logs; empty: the name of the host")
	f.Duration("leader-ttl", 5*time.Second, "how long a replica stays the leader after its last lease renewal")
}

// Complete sets what sluice-neutron does not ask for.
func (c Config) Complete() (Config, error) {
	c.Enforce.Renderers = []string{RendererSecgroup}
	c.Log.Verdicts = verdictsNone
	if c.Neutron.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("--identity is empty, and the host has no name: %w", err)
		}
		c.Neutron.Identity = host
	}
	_, errInfra := c.Enforce.Exempt()
	_, errEtcd := c.Store.Etcd.Client()
	return c, errors.Join(c.Neutron.check(), errInfra, errEtcd)
}

func (n Neutron) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n.URL == "" && n.Cloud == "" && os.Getenv("OS_CLOUD") == "" {
		bad("--os-cloud is needed: the name of a cloud in clouds.yaml")
	}
	if n.URL != "" && n.Cloud != "" {
		bad("--neutron-url and --os-cloud exclude each other")
	}
	if !slices.Contains([]string{PortsByAddress, PortsByName, PortsByDevice, PortsByTag}, n.PortsBy) {
		bad("--neutron-ports-by %.40q: want %s, %s, %s or %s", n.PortsBy, PortsByAddress, PortsByName, PortsByDevice, PortsByTag)
	}
	for flag, ids := range map[string][]string{"neutron-network": n.Networks, "neutron-default-group": n.DefaultGroups} {
		if slices.Contains(ids, "") {
			bad("--%s has an empty ID", flag)
		}
	}
	if n.MaxRules < 2 {
		bad("--neutron-max-rules %d: want at least 2", n.MaxRules)
	}
	for flag, d := range map[string]time.Duration{"neutron-timeout": n.Timeout, "neutron-refresh": n.Refresh, "leader-ttl": n.LeaderTTL} {
		if d < time.Second {
			bad("--%s %s: want at least a second", flag, d)
		}
	}
	return errors.Join(errs...)
}
