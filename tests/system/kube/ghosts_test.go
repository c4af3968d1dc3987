package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// api talks with the API server, which is in the network of the control machine.
type api struct {
	http *http.Client
	host string
}

func (s space) api() api {
	s.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", s.path("admin.conf"))
	if err != nil {
		s.t.Fatal(err)
	}
	ns := s.network(control)
	cfg.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
		return dialIn(ns, network, address, patience)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return api{c, cfg.Host}
}

// do sends an object, or none.
func (a api) do(method, path string, object any) (err error) {
	var body bytes.Buffer
	if object != nil {
		if err := json.NewEncoder(&body).Encode(object); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.host+path, &body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := a.http.Do(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return err
}

// ghostNode is a node without a machine.
const ghostNode = "ghost"

// ghosts are pods of a node without a kubelet, which come and go: peers of the policies of space
// shop.
type ghosts struct {
	space
	api    api
	made   atomic.Int64
	stop   func()
	begin  time.Time // of what is not logged
	logged int64
	mu     sync.Mutex
	alive  map[int]string // addresses
	errs   []error
}

// ghostsAtOnce is how many requests to the API server are under way at a time.
const ghostsAtOnce = 16

// newGhosts has rate pods a second come and go until check is called; 100 are there at a time.
func newGhosts(s space, rate int) *ghosts {
	s.t.Helper()
	g := &ghosts{space: s, api: s.api(), begin: time.Now(), alive: map[int]string{}}
	ctx, cancel := context.WithCancel(s.t.Context())
	if err := g.api.do(http.MethodPost, "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": ghostNode}}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.must(s.kube("", "delete", "node", ghostNode)) })
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		places := make(chan struct{}, ghostsAtOnce)
		for n := 0; ctx.Err() == nil; n++ {
			places <- struct{}{}
			running.Go(func() {
				defer func() { <-places }()
				if err := g.turn(n); err != nil {
					g.mu.Lock()
					defer g.mu.Unlock()
					g.errs = append(g.errs, err)
					cancel()
				}
			})
			<-tick.C
		}
	})
	g.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(g.stop)
	return g
}

// turn makes the n-th pod, and removes the one that is a hundred older.
func (g *ghosts) turn(n int) error {
	const there = 100
	pods, name := "/api/v1/namespaces/"+g.name+"/pods", func(n int) string { return fmt.Sprint("ghost-", n) }
	ip := netip.AddrFrom4([4]byte{10, 245, byte(n >> 8), byte(n)}).String()
	p := map[string]any{
		"metadata": map[string]any{"name": name(n), "labels": map[string]string{"app": "friend", "ghost": "true"}},
		"spec":     map[string]any{"nodeName": ghostNode, "containers": []any{map[string]string{"name": "c", "image": agnhostImage}}},
	}
	if err := g.api.do(http.MethodPost, pods, p); err != nil {
		return err
	}
	p["status"] = map[string]any{"phase": "Running", "podIP": ip, "podIPs": []any{map[string]string{"ip": ip}}}
	if err := g.api.do(http.MethodPut, pods+"/"+name(n)+"/status", p); err != nil {
		return err
	}
	g.made.Add(1)
	g.mu.Lock()
	g.alive[n] = ip
	delete(g.alive, n-there)
	g.mu.Unlock()
	if n < there {
		return nil
	}
	return g.api.do(http.MethodDelete, pods+"/"+name(n-there)+"?gracePeriodSeconds=0", nil)
}

// await waits until n more have come.
func (g *ghosts) await(n int64) {
	g.t.Helper()
	until := g.made.Load() + n
	if err := await(fmt.Sprint(n, " pods without a kubelet"), func() error {
		if have := g.made.Load(); have < until {
			return fmt.Errorf("%d are missing", until-have)
		}
		return nil
	}); err != nil {
		g.t.Error(err)
	}
}

// log logs how many came and went since it was called last.
func (g *ghosts) log(when string) {
	g.t.Helper()
	n, took := g.made.Load()-g.logged, time.Since(g.begin)
	g.logged, g.begin = g.made.Load(), time.Now()
	g.t.Logf("%s %d pods without a kubelet came and went in %s: %.0f a second", when, n, took.Round(time.Second), float64(n)/took.Seconds())
}

// check ends the coming and going, and waits until both nodes permit exactly those that are there.
func (g *ghosts) check() {
	g.t.Helper()
	g.stop()
	if err := errors.Join(g.errs...); err != nil {
		g.t.Error(err)
	}
	for n := range g.Nodes {
		if err := await("the members on "+nodeName(n+1), func() error {
			out, err := g.run(nodeName(n+1), "", g.Bin+"/sluicectl", "get", "sets", "-o", "json")
			if err != nil {
				return err
			}
			for _, ip := range g.alive {
				if !strings.Contains(out, ip+"/32") && !strings.Contains(out, `"`+ip+`"`) {
					return fmt.Errorf("%s is missing", ip)
				}
			}
			if have := strings.Count(out, "10.245."); have != len(g.alive) {
				return fmt.Errorf("%d addresses of pods that come and go are members, want %d", have, len(g.alive))
			}
			return nil
		}); err != nil {
			g.t.Error(err)
		}
	}
	if err := g.api.do(http.MethodDelete, "/api/v1/namespaces/"+g.name+"/pods?gracePeriodSeconds=0&labelSelector=ghost%3Dtrue", nil); err != nil {
		g.t.Error(err)
	}
}
