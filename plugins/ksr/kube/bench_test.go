package kube

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// typicalPod is a pod as an API server sends it, with many fields that policy does not need.
func typicalPod(i int) *corev1.Pod {
	ip := fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%03d", i%500), Name: fmt.Sprintf("web-5d78c9869d-%06d", i), ResourceVersion: fmt.Sprint(i),
			Labels:        map[string]string{"app": fmt.Sprintf("app-%d", i%40), "pod-template-hash": "5d78c9869d", "tier": "front", "version": "v1"},
			Annotations:   map[string]string{"example.org/checksum": fmt.Sprintf("%064d", i)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 2000))}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%04d", i%1000), Volumes: make([]corev1.Volume, 3),
			Containers: []corev1.Container{{Name: "main", Image: "registry.example/web:1", Env: make([]corev1.EnvVar, 10), Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, HostIP: "192.168.0.1", HostIPs: []corev1.HostIP{{IP: "192.168.0.1"}}},
	}
}

func live() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// owned is a store that one mirror owns for ever.
type owned struct{ *kvstore.Client }

func (owned) Guard(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// BenchmarkPods measures a replica with the pods of a cluster: heap per pod once all are in etcd,
// the first fill of an empty etcd, a sweep, and one change.
func BenchmarkPods(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			server, err := embedded.Start(b.Context(), embedded.Config{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = server.Close() }() // nothing is lost
			before := live()
			mirror := reflect.NewMirror(model.DefaultPrefix, []model.Kind{model.KindPod}, slog.New(slog.DiscardHandler))
			s, err := New(Config{API: &rest.Config{Host: "http://127.0.0.1:1"}, Sink: mirror, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			pods := &passThroughStore{s, model.KindPod}
			start := time.Now()
			list := make([]any, n)
			for i := range list {
				list[i] = typicalPod(i)
				strip(list[i])
			}
			if err := pods.Replace(list, "1"); err != nil {
				b.Fatal(err)
			}
			convert := time.Since(start)
			clear(list)
			standby := live() - before

			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			written := make(chan struct{}, 1)
			mirror.OnWritten(func(time.Duration) {
				select {
				case written <- struct{}{}:
				default:
				}
			})
			start = time.Now()
			go func() { _ = mirror.Run(ctx, owned{server.Client()}, time.Hour) }()
			for s := mirror.Status(); !s.Synced || s.Pending > 0; s = mirror.Status() {
				<-written
			}
			fill := time.Since(start)
			for len(written) > 0 {
				<-written
			}
			i := 0
			for b.Loop() {
				i++
				pod := typicalPod(i % n)
				pod.Labels["version"] = fmt.Sprint("changed-", i)
				if err := pods.Update(pod); err != nil {
					b.Fatal(err)
				}
				<-written
			}
			b.ReportMetric(convert.Seconds(), "s/convert")
			b.ReportMetric(fill.Seconds(), "s/fill")
			b.ReportMetric(float64(standby)/float64(n), "B/pod")
		})
	}
}
