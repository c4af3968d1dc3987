package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// FlowTables returns the flow tables in the node's rules of netfilter, sorted. What they forward
// passes no hook behind them, so packets that pods send through a service are not judged there.
func FlowTables() ([]string, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETFLOWTABLE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC})
	all, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP): // the kernel has no nf_tables
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("flow tables of netfilter: %w", err)
	}
	var out []string
	for _, m := range all {
		name, err := flowTable(m)
		if err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// The attributes of a flow table, and the families of its table (linux/netfilter/nf_tables.h).
const (
	flowTableTable = 1
	flowTableName  = 2
)

var tableFamilies = map[byte]string{unix.NFPROTO_INET: "inet", unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_NETDEV: "netdev", unix.NFPROTO_BRIDGE: "bridge"}

// flowTable returns the name of the flow table in a message of the kernel.
func flowTable(m []byte) (string, error) {
	if len(m) < nl.SizeofNfgenmsg {
		return "", errors.New("flow tables of netfilter: a message is too short")
	}
	attributes, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
	if err != nil {
		return "", fmt.Errorf("flow tables of netfilter: %w", err)
	}
	names := map[uint16]string{}
	for _, a := range attributes {
		names[a.Attr.Type] = unix.ByteSliceToString(a.Value)
	}
	return fmt.Sprintf("%s of table %s %s", names[flowTableName], tableFamilies[m[0]], names[flowTableTable]), nil
}
