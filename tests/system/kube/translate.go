package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// servicesCommand makes this program the one that sets up a node's VPP and its translations of
// services.
const servicesCommand = "services"

// vppSocket and vppReady are on nodes. The second is there when VPP has its routes and services.
const (
	vppSocket = "/run/vpp/api.sock"
	vppReady  = "/run/vpp/ready"
)

// translator is the configuration of that program, and its state.
type translator struct {
	Setup      []string     // commands for a VPP that has just started
	Kubeconfig string       // of a user who may list services and their endpoints
	Node       []netip.Addr // the node's own addresses

	conn *core.Connection
	have map[vip]installed
}

// installed is a translation of VPP.
type installed struct {
	id uint32
	to []netip.AddrPort
}

// translate runs until something is wrong; then it is started again, and begins anew.
func translate(ctx context.Context, spec string) error {
	text, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	t := &translator{have: map[vip]installed{}}
	if err := json.Unmarshal(text, t); err != nil {
		return err
	}
	if err := await("VPP", func() (err error) {
		t.conn, err = core.Connect(socketclient.NewVppClient(vppSocket))
		return err
	}); err != nil {
		return err
	}
	if err := t.setup(ctx); err != nil {
		return err
	}
	return t.follow(ctx)
}

// setup gives a VPP that has no interfaces what Setup says. Commands print only errors, or the name
// of what they created. A VPP that is only partly set up is ended, and starts again empty.
func (t *translator) setup(ctx context.Context) error {
	there, err := t.cli(ctx, "show interface")
	if err != nil || strings.Contains(there, "host-"+hostLink) {
		return err
	}
	for _, command := range t.Setup {
		out, err := t.cli(ctx, command)
		if out = strings.TrimSpace(out); err == nil && out != "" && !strings.HasPrefix(out, "host-") {
			err = errors.New(out)
		}
		if err != nil {
			_, _ = t.cli(ctx, "restart") // the first error is the one that matters
			return fmt.Errorf("%s: %w", command, err)
		}
	}
	return nil
}

func (t *translator) cli(ctx context.Context, command string) (string, error) {
	r, err := vlib.NewServiceClient(t.conn).CliInband(ctx, &vlib.CliInband{Cmd: command})
	if err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	return r.Reply, nil
}

// follow has VPP translate what the API server says, as long as VPP answers.
func (t *translator) follow(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	services, err := t.watch(ctx, changed, corev1.SchemeGroupVersion, "services", &corev1.Service{})
	if err != nil {
		return err
	}
	endpoints, err := t.watch(ctx, changed, discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{})
	if err != nil {
		return err
	}
	if err := t.adopt(ctx); err != nil {
		return err
	}
	alive := time.NewTicker(time.Second) // VPP's end is an error of a call
	defer alive.Stop()
	for {
		if err := t.sync(ctx, translations(objects[*corev1.Service](services), objects[*discoveryv1.EndpointSlice](endpoints), t.Node)); err != nil {
			return err
		}
		if err := os.WriteFile(vppReady, nil, 0o644); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-alive.C:
			if _, err := t.cli(ctx, "show version"); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch returns the objects of a kind, once they were listed. A change is noted in changed.
func (t *translator) watch(ctx context.Context, changed chan<- struct{}, gv schema.GroupVersion, plural string, kind runtime.Object) (cache.Store, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", t.Kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg.GroupVersion, cfg.APIPath, cfg.NegotiatedSerializer = &gv, "/apis", serializer.NewCodecFactory(scheme).WithoutConversion()
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	note := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(client, plural, metav1.NamespaceAll, fields.Everything()), kind, 0)
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { note() }, UpdateFunc: func(any, any) { note() }, DeleteFunc: func(any) { note() },
	})
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("list %s: %w", plural, ctx.Err())
	}
	return informer.GetStore(), nil
}

// objects returns what a store has.
func objects[T any](s cache.Store) (out []T) {
	for _, o := range s.List() {
		if typed, ok := o.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

// adopt finds the translations that VPP has from before.
func (t *translator) adopt(ctx context.Context) error {
	found, err := vpp.Drain[*cnat.CnatTranslationDetails](cnat.NewServiceClient(vpp.Streams{Connection: t.conn}).CnatTranslationDump(ctx, &cnat.CnatTranslationDump{}))
	if err != nil {
		return fmt.Errorf("list translations: %w", err)
	}
	for _, d := range found {
		a := netip.AddrPortFrom(netip.MustParseAddr(d.Translation.Vip.Addr.String()), d.Translation.Vip.Port)
		v := vip{AddrPort: a, node: slices.Contains(t.Node, a.Addr())}
		for name, number := range protocols {
			if number == d.Translation.IPProto {
				v.protocol = name
			}
		}
		t.have[v] = installed{id: d.Translation.ID} // without targets, so that VPP receives it again
	}
	return nil
}

// protocols are those that VPP translates.
var protocols = map[corev1.Protocol]ip_types.IPProto{
	corev1.ProtocolTCP: ip_types.IP_API_PROTO_TCP, corev1.ProtocolUDP: ip_types.IP_API_PROTO_UDP, corev1.ProtocolSCTP: ip_types.IP_API_PROTO_SCTP,
}

// sync has VPP translate exactly what is wanted.
func (t *translator) sync(ctx context.Context, want map[vip][]netip.AddrPort) error {
	client := cnat.NewServiceClient(t.conn)
	for v, i := range t.have {
		if want[v] != nil {
			continue
		}
		if _, err := client.CnatTranslationDel(ctx, &cnat.CnatTranslationDel{ID: i.id}); err != nil {
			return fmt.Errorf("end the translation of %s: %w", v, err)
		}
		delete(t.have, v)
	}
	for v, to := range want {
		if i, there := t.have[v]; there && slices.Equal(i.to, to) {
			continue
		}
		r, err := client.CnatTranslationUpdate(ctx, &cnat.CnatTranslationUpdate{Translation: message(v, to)})
		if err != nil {
			return fmt.Errorf("translate %s: %w", v, err)
		}
		t.have[v] = installed{r.ID, to}
	}
	return nil
}

// message returns a translation in the form for VPP.
func message(v vip, to []netip.AddrPort) cnat.CnatTranslation {
	m := cnat.CnatTranslation{Vip: endpoint(v.AddrPort), IPProto: protocols[v.protocol]}
	if v.node {
		m.IsRealIP = 1
	}
	for _, b := range to {
		from := netip.IPv4Unspecified() // keeps the sender's address
		if b.Addr().Is6() {
			from = netip.IPv6Unspecified()
		}
		m.Paths = append(m.Paths, cnat.CnatEndpointTuple{DstEp: endpoint(b), SrcEp: endpoint(netip.AddrPortFrom(from, 0))})
	}
	return m
}

func endpoint(a netip.AddrPort) cnat.CnatEndpoint {
	to := ip_types.NewAddress(a.Addr().AsSlice())
	return cnat.CnatEndpoint{Addr: to, IfAf: to.Af, Port: a.Port(), SwIfIndex: ^interface_types.InterfaceIndex(0)}
}
