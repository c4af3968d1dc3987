package reach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-net/sluice/internal/lib/version"
)

// DefaultNamespace is where the manifests of deploy/ put the agents.
const DefaultNamespace = "kube-system"

// selector selects the pods of agents, within their namespace: anybody may label pods in another one.
const selector = "app.kubernetes.io/part-of=sluice,app.kubernetes.io/component=agent"

// container is the agent's in its pod.
const container = "agent"

// Config says which cluster.
type Config struct {
	Kubeconfig string // path; empty: as kubectl, $KUBECONFIG or ~/.kube/config
	Context    string // empty: the current one
	Namespace  string // of the agents
}

// Exists reports whether there is a kubeconfig with a context.
func (c Config) Exists() bool {
	raw, err := c.loader().RawConfig()
	return err != nil || len(raw.Contexts) > 0 // a bad one is an error to be shown
}

func (c Config) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
}

// Cluster is the way to the agents of a cluster. Its methods may be called at the same time.
type Cluster struct {
	api       *rest.Config
	pods      dynamic.ResourceInterface
	namespace string
}

// Open reads the kubeconfig. It sends nothing yet.
func Open(c Config) (*Cluster, error) {
	loader := c.loader()
	if raw, err := loader.RawConfig(); err == nil && c.Context != "" && raw.Contexts[c.Context] == nil {
		return nil, fmt.Errorf("--context %q: kubeconfig has no such context: \"kubectl config get-contexts\" lists them", c.Context)
	}
	api, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("there is no kubeconfig: name one by --kubeconfig or $KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	api.UserAgent = "sluicectl/" + version.Get().Version
	api.QPS = -1 // a connection to each node, at once: the API server has limits of its own
	client, err := dynamic.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	in := cmp.Or(c.Namespace, DefaultNamespace)
	return &Cluster{api: api, pods: client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(in), namespace: in}, nil
}

// Agent is the agent of a node.
type Agent struct {
	Node, Pod string
	// Problem is why it cannot be asked; empty if it may answer.
	Problem string
}

// Agents returns the agents of all nodes, by the names of these.
func (c *Cluster) Agents(ctx context.Context) ([]Agent, error) {
	list, err := c.pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the pods of agents: %w", c.withRemedy(err))
	}
	best := map[string]corev1.Pod{}
	for _, item := range list.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
			return nil, fmt.Errorf("list the pods of agents: %w", err)
		}
		if before, ok := best[pod.Spec.NodeName]; pod.Spec.NodeName != "" && (!ok || isBetter(&pod, &before)) {
			best[pod.Spec.NodeName] = pod
		}
	}
	if len(best) == 0 {
		return nil, fmt.Errorf("no agent runs in namespace %s (pods with labels %s): install Sluice, or name its namespace by --agent-namespace", c.namespace, selector)
	}
	var agents []Agent
	for node, pod := range best {
		agents = append(agents, Agent{Node: node, Pod: pod.Name, Problem: problemOf(&pod)})
	}
	slices.SortFunc(agents, func(a, b Agent) int { return strings.Compare(a.Node, b.Node) })
	return agents, nil
}

// isBetter prefers the pod of a node that answers: while an agent is updated there are two.
func isBetter(a, b *corev1.Pod) bool {
	x, y := problemOf(a) == "", problemOf(b) == ""
	if x != y {
		return x
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

// problemOf returns why the agent in a pod cannot be asked. One that is not ready can.
func problemOf(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.Name != container || s.State.Running != nil:
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			return fmt.Sprintf("its pod %s waits: %s", pod.Name, s.State.Waiting.Reason)
		default:
			return fmt.Sprintf("its pod %s does not run", pod.Name)
		}
	}
	switch {
	case pod.Status.Phase != corev1.PodRunning:
		return fmt.Sprintf("its pod %s is %s", pod.Name, pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("its pod %s ends", pod.Name)
	}
	return ""
}

// withRemedy says what to do about an error of the API server.
func (c *Cluster) withRemedy(err error) error {
	switch {
	case apierrors.IsForbidden(err), strings.Contains(err.Error(), "is forbidden"):
		return fmt.Errorf("%w: it takes the ClusterRole sluicectl, bound in namespace %s (docs/guide/sluicectl.md)", err, c.namespace)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the credentials of the kubeconfig: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("the API server did not answer in time")
	}
	return err
}
