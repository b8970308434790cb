package report

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// onlyMetadata requests answers without a pod's spec and status.
const onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// client writes to the API server. It does not retry: the queues do.
type client struct {
	pods   rest.Interface
	events typedcorev1.EventsGetter
}

var (
	_ patcher = (*client)(nil)
	_ sender  = (*client)(nil)
)

func newClient(api *rest.Config) (*client, error) {
	api = rest.CopyConfig(api)
	api.QPS, api.RateLimiter = -1, nil
	connection, err := rest.HTTPClientFor(api)
	if err != nil {
		return nil, err
	}
	events, err := typedcorev1.NewForConfigAndClient(api, connection)
	if err != nil {
		return nil, err
	}
	partial := metadata.ConfigFor(api)
	partial.APIPath, partial.GroupVersion = "/api", &corev1.SchemeGroupVersion
	pods, err := rest.RESTClientForConfigAndClient(partial, connection)
	if err != nil {
		return nil, err
	}
	return &client{pods, events}, nil
}

// patch is a strategic merge patch of a pod's annotation and condition: it keeps the conditions of
// others. The UID makes it fail on another pod of the same name. Without a resource version,
// concurrent changes do not conflict.
type patch struct {
	Metadata struct {
		UID         string             `json:"uid"`
		Annotations map[string]*string `json:"annotations"` // nil removes
	} `json:"metadata"`
	Status struct {
		Conditions []corev1.PodCondition `json:"conditions,omitempty"`
	} `json:"status,omitzero"`
}

func encodePatch(n note) ([]byte, error) {
	var p patch
	p.Metadata.UID = n.uid
	p.Metadata.Annotations = map[string]*string{kube.InterfacesAnnotation: nil}
	if n.value != "" {
		p.Metadata.Annotations[kube.InterfacesAnnotation] = &n.value
	}
	if n.ready {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: kube.NetworkReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
			Reason: "Confirmed", Message: "the network has the pod, its policies, and its memberships in the policies of its peers",
		}}
	}
	return json.Marshal(p)
}

func (c *client) annotate(ctx context.Context, n note) (revision string, err error) {
	body, err := encodePatch(n)
	if err != nil {
		return "", fmt.Errorf("encode patch of pod %s/%s: %w", n.namespace, n.name, err)
	}
	var answer metav1.PartialObjectMetadata
	err = c.pods.Patch(types.StrategicMergePatchType).
		Namespace(n.namespace).Resource("pods").Name(n.name).SubResource("status").
		Param("fieldManager", component).
		SetHeader("Accept", onlyMetadata).
		Body(body).MaxRetries(0).
		Do(ctx).Into(&answer)
	if err != nil {
		return "", fmt.Errorf("annotate pod %s/%s: %w", n.namespace, n.name, err)
	}
	return answer.ResourceVersion, nil
}

func (c *client) create(ctx context.Context, e *corev1.Event) error {
	_, err := c.events.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{FieldManager: component})
	if err != nil {
		return fmt.Errorf("create event of %s %s/%s: %w", e.InvolvedObject.Kind, e.Namespace, e.InvolvedObject.Name, err)
	}
	return nil
}

func (c *client) repeat(ctx context.Context, e *corev1.Event) error {
	body, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return fmt.Errorf("encode patch of event %s/%s: %w", e.Namespace, e.Name, err)
	}
	_, err = c.events.Events(e.Namespace).Patch(ctx, e.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: component})
	if err != nil {
		return fmt.Errorf("count event of %s %s/%s: %w", e.InvolvedObject.Kind, e.Namespace, e.InvolvedObject.Name, err)
	}
	return nil
}
