package configurator

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func policyID(name string) api.PolicyID { return api.PolicyID{Namespace: "shop", Name: name} }

func podID(i int) api.PodID {
	return api.PodID{Namespace: "shop", Name: "pod-" + string(rune('a'+i/26)) + string(rune('a'+i%26))}
}

func podAddrs(i int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(1 + i%250)})}
}

func tcpPorts(ports ...uint16) (list []api.PolicyPort) {
	for _, p := range ports {
		list = append(list, api.PolicyPort{Protocol: api.TCP, Range: api.Port(p)})
	}
	return list
}
