package convert

import (
	"fmt"
	"net/netip"
	"slices"

	netutils "k8s.io/utils/net"

	"github.com/sluice-net/sluice/api/model"
)

// parseAddr reads an address as old clusters wrote them: leading zeros and IPv4
// in IPv6 notation are accepted. An address that no pod or node can have is not.
func parseAddr(text string) (netip.Addr, error) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	addr = addr.Unmap()
	if !ok || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%s is not an address of a pod or node, it is left out", model.Quoted(text))
	}
	return addr, nil
}

// parsePodAddr reads an address of a pod that is not in the host network of its node. One that only
// a node has, or that means another one on each host, is refused: what is from or to it is not the
// pod's.
func parsePodAddr(text string, nodeIPs []string) (netip.Addr, error) {
	addr, err := parseAddr(text)
	switch {
	case err != nil:
		return addr, err
	case !addr.IsGlobalUnicast():
		return addr, fmt.Errorf("%s is not an address of a pod: loopback, link-local and broadcast are left out", model.Quoted(text))
	case slices.Contains(nodeIPs, addr.String()):
		return addr, fmt.Errorf("%s is the address of the pod's node, and the pod is not in the host network: it is left out", model.Quoted(text))
	}
	return addr, nil
}

// parseCIDR reads a block as old clusters wrote them: leading zeros, IPv4 in IPv6
// notation and bits behind the prefix are accepted. The result is masked.
func parseCIDR(text string) (netip.Prefix, error) {
	_, block, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32", model.Quoted(text))
	}
	addr, _ := netip.AddrFromSlice(block.IP)
	bits, _ := block.Mask.Size()
	if mapped := 128 - 32; addr.Is4In6() && bits >= mapped {
		addr, bits = addr.Unmap(), bits-mapped
	}
	return netip.PrefixFrom(addr, bits).Masked(), nil
}

// strictlyWithin reports whether a prefix is a part of another, and not all of it.
func strictlyWithin(part, whole netip.Prefix) bool {
	return part.Bits() > whole.Bits() && whole.Contains(part.Addr())
}

// readAddresses returns a list of addresses in canonical text, sorted, each once;
// where the list is empty, the single address of older clusters. Of more than
// model.MaxAddresses the first ones stay.
func readAddresses(n int, text func(int) string, single string, list, fallback place, parse func(string) (netip.Addr, error)) []string {
	var out []string
	add := func(text string, at place) {
		if addr, err := parse(text); err != nil {
			at.errorf("%v", err)
		} else {
			out = append(out, addr.String())
		}
	}
	for i := range n {
		add(text(i), list.index(i).child("ip"))
	}
	if n == 0 && single != "" {
		add(single, fallback)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > model.MaxAddresses {
		list.errorf("has %d addresses, the limit is %d: the others are left out", len(out), model.MaxAddresses)
		out = out[:model.MaxAddresses:model.MaxAddresses]
	}
	return out
}
