package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/ligato"
)

// Ligato reports whether ACLs are published for a ligato vpp-agent, and how.
type Ligato struct {
	Target    string `koanf:"acl-target"`
	Label     string `koanf:"ligato-label"`
	Prefix    string `koanf:"ligato-prefix"`
	Interface string `koanf:"ligato-interface"`
}

// What --acl-target can be.
const (
	targetGoVPP  = "govpp"
	targetLigato = "ligato"
)

func ligatoFlags(f *pflag.FlagSet) {
	f.String("acl-target", targetGoVPP, "who gets the ACLs: govpp (VPP, by its binary API) or ligato (a ligato vpp-agent v3, by keys in the same etcd)")
	f.String("ligato-label", ligato.DefaultLabel, "microservice label of the vpp-agent")
	f.String("ligato-prefix", ligato.DefaultPrefix, "prefix of the keys of all vpp-agents in etcd")
	f.String("ligato-interface", "", "name that a pod's interface has in the configuration of the vpp-agent when no key in etcd names it, such as tap-{namespace}-{name}; uplinks are --uplink")
}

// The placeholders of --ligato-interface.
const (
	placeNamespace = "{namespace}"
	placeName      = "{name}"
)

// Wanted reports whether a vpp-agent gets the ACLs.
func (l Ligato) Wanted() bool { return l.Target == targetLigato }

// InterfaceOf returns the name that the template gives a pod's interface; empty without one.
func (l Ligato) InterfaceOf(pod api.PodID) string {
	return strings.NewReplacer(placeNamespace, pod.Namespace, placeName, pod.Name).Replace(l.Interface)
}

func (l Ligato) check() error {
	if !slices.Contains([]string{targetGoVPP, targetLigato, ""}, l.Target) {
		return fmt.Errorf("--acl-target %q: want govpp or ligato", l.Target)
	}
	if !l.Wanted() || l.Interface == "" {
		return nil
	}
	for _, place := range []string{placeNamespace, placeName} {
		if !strings.Contains(l.Interface, place) {
			return fmt.Errorf("--ligato-interface %q: %s is missing, so different pods would have the same interface", l.Interface, place)
		}
	}
	return nil
}
