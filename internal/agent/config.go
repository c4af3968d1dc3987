package agent

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Config holds the settings of an agent. Each has a flag of its key's name, an
// environment variable, and a key in the file of --config; a flag wins over the
// environment, that over the file, that over the default.
type Config struct {
	Node             string        `koanf:"node"`
	NodeAddresses    []string      `koanf:"node-address"`
	AllowNodeTraffic bool          `koanf:"allow-node-traffic"`
	EtcdPrefix       string        `koanf:"etcd-prefix"`
	Etcd             settings.Etcd `koanf:",squash"`
	EtcdDir          string        `koanf:"etcd-dir"`
	StateFile        string        `koanf:"state-file"`
	StatusInterval   time.Duration `koanf:"status-interval"`
	VPPSocket        string        `koanf:"vpp-socket"`
	VPPStatsSocket   string        `koanf:"vpp-stats-socket"`
	VPPTimeout       time.Duration `koanf:"vpp-timeout"`
	ACLTarget        string        `koanf:"acl-target"`
	Renderers        []string      `koanf:"renderers"`
	LigatoLabel      string        `koanf:"ligato-label"`
	LigatoPrefix     string        `koanf:"ligato-prefix"`
	LigatoInterface  string        `koanf:"ligato-interface"`
	Uplinks          []string      `koanf:"uplink"`
	HoldUnknownPods  bool          `koanf:"hold-unknown-pods"`
	Established      string        `koanf:"established"`
	ACLOrientation   string        `koanf:"acl-orientation"`
	Grace            time.Duration `koanf:"grace"`
	UDPIdle          time.Duration `koanf:"udp-idle-timeout"`
	SessionTable     uint32        `koanf:"session-table"`
	Infra            []string      `koanf:"infra"`
	ACLMemory        uint32        `koanf:"acl-memory"`
	VPPPauseBudget   string        `koanf:"vpp-pause-budget"`
	ServiceCIDRs     []string      `koanf:"service-cidr"`
	APISocket        string        `koanf:"api-socket"`
	APIGroup         string        `koanf:"api-group"`
	MetricsAddress   string        `koanf:"metrics-address"`
	RuleMetrics      bool          `koanf:"rule-metrics"`
	LogLevel         string        `koanf:"log-level"`
	LogFormat        string        `koanf:"log-format"`
	LogVerdicts      string        `koanf:"log-verdicts"`
	Manifests        string        `koanf:"manifests"`
	AcceptLegacy     bool          `koanf:"accept-legacy"`
	VswitchSocket    string        `koanf:"vswitch-socket"`
	Once             bool          `koanf:"once"`
	XDPMode          string        `koanf:"xdp-mode"`
	XDPNetNS         string        `koanf:"xdp-netns"`
	XDPPins          string        `koanf:"xdp-pins"`
	XDPUplinks       []string      `koanf:"xdp-uplink"`
	XDPLearn         time.Duration `koanf:"xdp-learn"`
	XDPFlows         uint32        `koanf:"xdp-flows"`
	PolicyMemory     uint32        `koanf:"policy-memory"`
	XDPEvents        uint32        `koanf:"xdp-events"`
	XDPSample        uint32        `koanf:"xdp-sample"`
	XDPAnySource     bool          `koanf:"xdp-any-source"`
	NonIP            string        `koanf:"non-ip"`
	PodTunnels       string        `koanf:"pod-tunnels"`
	PodTunnelPorts   []int         `koanf:"pod-tunnel-ports"`
	NewInterfaces    string        `koanf:"new-interfaces"`
	PodInterfaces    []string      `koanf:"pod-interfaces"`
	CNIConfDir       string        `koanf:"cni-conf-dir"`
	CNIBinDir        string        `koanf:"cni-bin-dir"`
	CNIOptions       string        `koanf:"cni-options"`
	CNIResults       string        `koanf:"cni-results"`
	EndpointsFile    string        `koanf:"endpoints-file"`
	TakeOver         bool          `koanf:"take-over"`
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
	f.String("api-group", "", "group whose members may ask on the socket, but change nothing; empty: root and the agent's own user only")
	f.String("metrics-address", "", "host:port of /metrics, /livez and /readyz over TCP; without a host on loopback; empty for the debug API only")
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
	f.StringSlice("renderers", []string{rendererACL}, runRenderersUsage)
	settings.EtcdFlags(f)
	f.String("state-file", "/var/lib/sluice/agent/state", "file with the last known state, enforced when the agent starts and etcd does not answer; empty for none")
	f.Duration("status-interval", 10*time.Second, "how often the agent writes its status to etcd while there are many changes; a change after a quiet time is written at once; 0: never")
	f.String("vpp-socket", "/run/vpp/api.sock", "Unix socket of VPP's binary API")
	f.String("vpp-stats-socket", "/run/vpp/stats.sock", "socket of VPP's statistics segment, for the packet counters of rules and the size of VPP's heap; empty: neither is known")
	ligatoFlags(f)
	xdpFlags(f)
	cniFlags(f)
	f.Bool("hold-unknown-pods", true, "close interfaces of pods until their pod is known, so that it sends and gets nothing before its policy is enforced")
	f.Duration("grace", 5*time.Minute, "for how long after VPP's start pods may go on with flows that they had opened before; 0 for not at all")
	f.String("vpp-pause-budget", "1%", "share of time for which changes of rules may pause VPP's workers; what only permits more waits for it, 2 s at most; 100%: nothing waits")
	f.StringSlice("service-cidr", nil, "addresses of services that VPP translates (CNAT, nat44) to those of pods; what pods send there is judged behind the translation; none: VPP translates none")
	f.Duration("udp-idle-timeout", 2*time.Minute, "when VPP forgets a flow of UDP without packets; 0 leaves VPP's setting, which is 10 minutes")
	f.Uint32("session-table", 0, "how many sessions VPP may have, for all pods together; only as many as its table has once an interface has ACLs; 0 leaves VPP's setting, which is 500000")
}

func devFlags(f *pflag.FlagSet) {
	f.StringSlice("renderers", []string{rendererACL}, devRenderersUsage)
	f.String("manifests", "", "directory of Kubernetes manifests to reflect and to follow")
	f.Bool("accept-legacy", false, "also read policies of extensions/v1beta1 and the annotation that isolates a namespace, as before Kubernetes 1.7")
	f.String("etcd-dir", "", "directory of the embedded etcd; empty for a temporary one")
	f.String("vswitch-socket", "", "also serve the embedded dataplane's VPP binary API on this Unix socket")
	f.Bool("once", false, "print the report and end")
}

// loadConfig reads the settings from the file, the environment and the flags.
func loadConfig(flags *pflag.FlagSet, environ []string) (Config, error) {
	return settings.Load[Config](flags, environ)
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
