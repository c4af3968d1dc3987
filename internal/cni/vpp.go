package cni

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/internal/cni/vppport"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// vppTimeout bounds how long one command takes with VPP, while others talk to VPP included. A VPP
// that does not answer ends it sooner.
const vppTimeout = time.Minute

// addVPP connects a pod to VPP: as the plugin that makes the interface, or behind one that made it.
func addVPP(args *skel.CmdArgs, c *config) error {
	p, err := readPod(args.Args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	a := &vppAttaching{config: c, args: args, pod: p}
	if c.prev != nil {
		return a.chained(ctx)
	}
	return a.main(ctx)
}

// talk calls f with a connection to VPP, see vppport.Talk.
func (c *config) talk(ctx context.Context, f func(context.Context, *vppport.Client) error) error {
	err := vppport.Talk(ctx, c.VPPSocket, f)
	if errors.Is(err, vppport.ErrUnreachable) {
		return unreachable(err)
	}
	return err
}

func unreachable(err error) error {
	return types.NewError(types.ErrTryAgainLater, "VPP cannot be reached", err.Error())
}

// vppAttaching is an ADD under way.
type vppAttaching struct {
	*config
	args *skel.CmdArgs
	pod  pod
	undo []func(context.Context) error // what was made, in that order
}

// main makes the interface. The agent sets it up in VPP, with the rules of the pod. After an error
// nothing is left.
func (a *vppAttaching) main(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			a.takeBack()
		}
	}()
	if err := a.isNew(ctx); err != nil {
		return err
	}
	result, err := a.addresses(ctx)
	if err != nil {
		return err
	}
	if err := a.connect(ctx, result); err != nil {
		return err
	}
	if err := a.await(vppport.NameOf(a.kind(), a.hostIf())); err != nil {
		return err
	}
	return types.PrintResult(result, a.CNIVersion)
}

// takeBack removes what was made, as far as VPP answers.
func (a *vppAttaching) takeBack() {
	ctx, cancel := context.WithTimeout(context.Background(), vppTimeout)
	defer cancel()
	for _, undo := range slices.Backward(a.undo) {
		_ = undo(ctx) // the first error is the one that matters; DEL comes, too
	}
}

// isNew refuses an attachment that is there: what it has must not go when this ADD fails.
func (a *vppAttaching) isNew(ctx context.Context) error {
	hostIf := a.hostIf()
	found := false
	err := a.talk(ctx, func(ctx context.Context, client *vppport.Client) (err error) {
		if _, found, err = client.Find(ctx, hostIf); err != nil {
			err = types.NewError(types.ErrIOFailure, "VPP's interfaces cannot be listed", err.Error())
		}
		return err
	})
	if err != nil {
		return err
	}
	if !found {
		_, err = netlink.LinkByName(hostIf)
		found = err == nil
	}
	if found {
		return isThere("interface "+hostIf, "")
	}
	return nil
}

// hostIf names the attachment.
func (a *vppAttaching) hostIf() string { return hostIfOf(a.Name, attachment(a.args)) }

// addresses has the IPAM plugin say which addresses the pod gets.
func (a *vppAttaching) addresses(ctx context.Context) (*current.Result, error) {
	if a.IPAM.Type == "" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "ipam.type is missing: without a plugin before it, sluice-cni creates the interface and needs an IPAM plugin", "")
	}
	a.undo = append(a.undo, func(ctx context.Context) error {
		return invoke.DelegateDel(ctx, a.IPAM.Type, a.args.StdinData, nil)
	})
	r, err := invoke.DelegateAdd(ctx, a.IPAM.Type, a.args.StdinData, nil)
	if err != nil {
		return nil, err // has CNI's code
	}
	result, err := current.NewResultFromResult(r)
	if err != nil || len(result.IPs) == 0 {
		return nil, types.NewError(types.ErrInternal, "IPAM plugin "+a.IPAM.Type+" gave no addresses", fmt.Sprint(err))
	}
	return result, nil
}

// connect makes both sides of the interface, and completes the result.
func (a *vppAttaching) connect(ctx context.Context, r *current.Result) error {
	addrs, err := addressesOf(r)
	if err != nil {
		return err
	}
	ends, err := enter(a.args.Netns, a.args.IfName)
	if err != nil {
		return err
	}
	defer ends.close()
	p := vppport.Port{Kind: a.kind(), HostIf: a.hostIf(), Tag: a.tag(), Addrs: addrs, UID: a.pod.uid, NetNS: a.args.Netns, IfName: a.args.IfName, MTU: a.MTU}
	if err := a.prepare(ends, &p); err != nil {
		return err
	}
	a.undo = append(a.undo, func(ctx context.Context) error { return detach(ctx, a.config, p.UID, p.HostIf) })
	var via net.HardwareAddr
	err = a.talk(ctx, func(ctx context.Context, client *vppport.Client) (err error) {
		if via, err = client.Attach(ctx, p); err != nil {
			err = types.NewError(types.ErrIOFailure, "the interface of the pod cannot be made in VPP"+missing(p.Kind), err.Error())
		}
		return err
	})
	if err != nil {
		return err
	}
	r.Interfaces = []*current.Interface{
		{Name: vppport.NameOf(p.Kind, p.HostIf), Mac: via.String()},
		{Name: a.args.IfName, Mac: p.MAC.String(), Sandbox: a.args.Netns, SocketPath: p.Socket},
	}
	for i, ip := range r.IPs {
		ip.Interface, ip.Address, ip.Gateway = new(1), *host(addrs[i]), net.IP(gatewayOf(addrs[i].Is6()).AsSlice())
	}
	if p.Kind == vppport.Memif {
		return describe(p.Socket, r)
	}
	if p.Kind == vppport.Tap {
		err = ends.find(a.args.IfName)
	}
	if err == nil {
		err = ends.up(addrs, r.Routes, via)
	}
	if err != nil {
		return types.NewError(types.ErrIOFailure, "the interface of the pod cannot be configured", err.Error())
	}
	return nil
}

// prepare makes what an interface needs outside of VPP, and says which address of Ethernet the pod
// has.
func (a *vppAttaching) prepare(ends *pair, p *vppport.Port) (err error) {
	switch p.Kind {
	case vppport.Tap:
		p.MAC = macOf(p.HostIf)
	case vppport.Memif:
		p.MAC = macOf(p.HostIf)
		if p.Socket, err = a.makeFolder(); err != nil {
			return err
		}
	default:
		if err := ends.addVeth(a.config, a.args.IfName, p.HostIf); err != nil {
			return err
		}
		p.MAC = ends.mac
		a.undo = append(a.undo, func(context.Context) error { return removePair(p.HostIf) })
	}
	return nil
}

// vhost is what a tap of VPP needs of the node's kernel.
const vhost = "/dev/vhost-net"

// missing returns what an interface needs that the node does not have.
func missing(k vppport.Kind) string {
	if _, err := os.Stat(vhost); k == vppport.Tap && err != nil {
		return ": a tap needs " + vhost + ", which is not there: load the kernel's module vhost_net, or set \"interface\" to \"host\""
	}
	return ""
}

// macOf returns an address of Ethernet for the pod's end of an attachment: one that is given
// locally.
func macOf(hostIf string) net.HardwareAddr {
	sum := sha256.Sum256([]byte(hostIf))
	return append(net.HardwareAddr{2}, sum[:5]...)
}

// chained tags the interface that another plugin made. It is down until the agent has blocked it,
// or enforces policy there; after an error it stays down.
func (a *vppAttaching) chained(ctx context.Context) error {
	var n vppport.Interface
	err := a.talk(ctx, func(ctx context.Context, client *vppport.Client) (err error) {
		if n, err = a.made(ctx, client); err != nil {
			return err
		}
		if err := errors.Join(client.SetUp(ctx, n.Index, false), client.Tag(ctx, n.Index, a.tag())); err != nil {
			return types.NewError(types.ErrIOFailure, "the interface of the pod cannot be tagged in VPP", err.Error())
		}
		return nil
	})
	if err != nil {
		return err
	}
	e, err := a.ask(n.Name, wire.Pending, max(a.timeout, removeTimeout))
	if err != nil {
		return err
	}
	if e.State == wire.Unknown {
		return types.NewError(types.ErrTryAgainLater, "the agent has not blocked the interface", e.Reason)
	}
	err = a.talk(ctx, func(ctx context.Context, client *vppport.Client) error {
		if err := client.SetUp(ctx, n.Index, true); err != nil {
			return types.NewError(types.ErrIOFailure, "the interface of the pod cannot be set up in VPP", err.Error())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.await(n.Name); err != nil {
		return err
	}
	return types.PrintResult(a.prev, a.CNIVersion)
}

// made finds the interface that the plugins before made in VPP: its name, or that of the node's end
// of a host-interface, is in their result.
func (a *vppAttaching) made(ctx context.Context, client *vppport.Client) (found vppport.Interface, err error) {
	all, err := client.Interfaces(ctx)
	if err != nil {
		return found, types.NewError(types.ErrIOFailure, "VPP's interfaces cannot be listed", err.Error())
	}
	var names []string
	for _, i := range a.prev.Interfaces {
		if i.Sandbox == "" {
			names = append(names, i.Name, vppport.NameOf(vppport.Host, i.Name))
		}
	}
	n := 0
	for _, i := range all {
		if slices.Contains(names, i.Name) {
			found, n = i, n+1
		}
	}
	if n != 1 {
		return found, types.NewError(types.ErrInvalidNetworkConfig,
			fmt.Sprintf("%d interfaces of VPP are in prevResult: want one whose name, or that of its node's end, is in interfaces without a sandbox", n), strings.Join(names, " "))
	}
	if found.Tag != "" && found.Tag != a.tag() && found.Tag != releasedTag {
		return found, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("interface %s has the tag %q already", found.Name, found.Tag), "")
	}
	return found, nil
}

// releasedTag is the tag of an interface that was a pod's and is not.
const releasedTag = "sluice/released"

func (a *vppAttaching) tag() string { return vpp.PodTag(a.pod.namespace + "/" + a.pod.name) }

// await has the agent look at an interface, and waits for policy if that is wanted.
func (a *vppAttaching) await(name string) error {
	deadline := time.Now().Add(a.timeout)
	if !a.waits() {
		deadline = time.Now()
	}
	for {
		e, err := a.ask(name, wire.Enforced, max(0, time.Until(deadline)))
		switch {
		case err == nil && e.State == wire.Enforced, err == nil && !a.waits():
			return nil
		case err == nil && time.Now().Before(deadline):
			continue
		case err == nil:
			return a.late(fmt.Sprintf("interface %s is %s: %s", e.Interface, e.State, e.Reason))
		case isRefusal(err):
			return err
		case time.Until(deadline) >= retryEvery:
		case a.AgentAbsent != agentAbsentBlock:
			return err
		default:
			return a.late(err.Error())
		}
		time.Sleep(retryEvery)
	}
}

// late ends an ADD whose time is over. The interface is down, or blocked.
func (a *vppAttaching) late(why string) error {
	if a.waits() && a.OnTimeout == onTimeoutFail {
		return types.NewError(types.ErrTryAgainLater, "policy is not enforced yet", why)
	}
	return nil
}

// ask asks the agent about an interface.
func (a *vppAttaching) ask(name, until string, timeout time.Duration) (wire.Endpoint, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout+answerTimeout)
	defer cancel()
	e, err := wire.NewClient(a.Socket).WaitVPP(ctx, wire.VPP{Interface: name, Namespace: a.pod.namespace, Name: a.pod.name, Until: until, Timeout: timeout})
	switch {
	case refused(err):
		return e, types.NewError(types.ErrInternal, "the agent refuses the interface", err.Error())
	case err != nil:
		return e, types.NewError(types.ErrTryAgainLater, "the agent does not answer", err.Error())
	}
	return e, nil
}

// isRefusal reports whether an error of ask is an answer.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*types.Error](err)
	return ok && e.Code == types.ErrInternal
}

// hostIfOf names an attachment, and the node's end of its veth pair: the first part is that of the
// network.
func hostIfOf(network string, a wire.Attachment) string {
	sum := sha256.Sum256([]byte(a.String()))
	return networkPrefix(network) + hex.EncodeToString(sum[:4])
}

// networkPrefix begins the names of the attachments of a network.
func networkPrefix(network string) string {
	sum := sha256.Sum256([]byte(network))
	return vpp.CNIPrefix + hex.EncodeToString(sum[:2])
}

// addressesOf returns the addresses of a result.
func addressesOf(r *current.Result) (out []netip.Addr, err error) {
	for _, ip := range r.IPs {
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, types.NewError(types.ErrInternal, fmt.Sprintf("the IPAM plugin gave the address %s", ip.Address.IP), "")
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

// families returns which families addresses are of: whether of IPv6.
func families(addrs []netip.Addr) (out []bool) {
	for _, six := range []bool{false, true} {
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is6() == six }) {
			out = append(out, six)
		}
	}
	return out
}

func gatewayOf(six bool) netip.Addr {
	if six {
		return vppport.Gateway6
	}
	return vppport.Gateway4
}

// destinations returns where the routes of a family lead to: everywhere, unless the IPAM plugin
// says otherwise.
func destinations(six bool, routes []*types.Route) (out []*net.IPNet) {
	for _, r := range routes {
		if (r.Dst.IP.To4() == nil) == six {
			out = append(out, &r.Dst)
		}
	}
	if out == nil {
		everywhere := net.IPv4zero
		if six {
			everywhere = net.IPv6zero
		}
		out = append(out, &net.IPNet{IP: everywhere, Mask: net.CIDRMask(0, gatewayOf(six).BitLen())})
	}
	return out
}
