// Package manifest reads Kubernetes manifests, as kubectl accepts and prints them, and puts them
// into a Store, like package kube for a cluster with just these objects. It does not ask an API
// server, so it sets the defaults and does the checks of an API server that a bridge relies on.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// Set has the objects of manifests that a bridge watches, completed with namespace and UID. The
// zero value is empty.
type Set struct {
	Namespaces []*corev1.Namespace
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	Services   []*corev1.Service
	Slices     []*discoveryv1.EndpointSlice
	Policies   []*networkingv1.NetworkPolicy
	// EgressIPs are sorted by their age, as far as it is known. Put does not use them: nodes that hold addresses are chosen by a
	// bridge.
	EgressIPs []*coe.EgressSpec
	// AccessLists are the access lists of RESTCONF clients, which pods can name as security
	// profiles. Read reads none.
	AccessLists []*coe.PolicySpec
	// Skipped are the objects that a bridge does not watch, and the unknown fields that an API
	// server has set.
	Skipped []Skipped

	told    map[string]string // the place of an object, by kind and name
	unknown map[string]bool   // skipped fields, by kind and path
}

// Skipped is an object of a manifest that a bridge ignores, or a field of a kind of objects. A
// field is there once, with the place of the first object that has it.
type Skipped struct {
	Kind    string `json:"kind"`  // of a field: KIND field
	Name    string `json:"name"`  // with its namespace, if it has one
	Where   string `json:"where"` // file and document
	Message string `json:"message"`
}

// place is the place of an object in the manifests.
type place struct {
	file     string
	document int
	item     int // index in a list, from 1; 0 outside of lists
}

func (p place) String() string {
	if p.item > 0 {
		return fmt.Sprintf("%s: document %d: item %d", p.file, p.document, p.item)
	}
	return fmt.Sprintf("%s: document %d", p.file, p.document)
}

// Read adds the manifests of one file: YAML documents, or a sequence of JSON objects. Errors name
// the file, the number of the document without empty ones, the object and the field. A file
// without documents is an error. After an error the Set must not be used.
//
// Unknown fields are errors, with two exceptions. An API server may be newer than this program: an
// unknown field is skipped if the object has a resourceVersion. But the rules of a NetworkPolicy
// are read in full or not at all. An API server may also be older: a status is skipped if its kind
// no longer has one.
func (m *Set) Read(file string, r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	next := yamlDocuments(text)
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		next = jsonDocuments(text)
	}
	for at := (place{file: file, document: 1}); ; at.document++ {
		document, err := next()
		switch {
		case errors.Is(err, io.EOF) && at.document == 1:
			return fmt.Errorf("%s: it has no objects", file)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", at, err)
		}
		if err := m.add(at, document, metav1.TypeMeta{}); err != nil {
			return err
		}
	}
}

// header is the common part of all objects.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
}

// name returns the object's name for messages.
func (h header) name() string {
	switch {
	case h.Metadata.Name == "":
		return "without a name"
	case h.Metadata.Namespace == "":
		return h.Metadata.Name
	}
	return h.Metadata.Namespace + "/" + h.Metadata.Name
}

// list is a List, or a list of one kind.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// add adds an object, or the objects of a list. Items of a list of one kind, such as PodList, may
// lack their type: then it is of.
func (m *Set) add(at place, document []byte, of metav1.TypeMeta) error {
	var h header
	if err := json.Unmarshal(document, &h); err != nil {
		return fmt.Errorf("%s: want a Kubernetes object: %w", at, explainType(err))
	}
	if h.Kind == "" && h.APIVersion == "" {
		h.TypeMeta = of
	}
	if h.Kind == "" || h.APIVersion == "" {
		return fmt.Errorf("%s: want a Kubernetes object with apiVersion and kind; a file of manifests must not have RESTCONF entries", at)
	}
	if kind, isList := strings.CutSuffix(h.Kind, "List"); isList && (kind == "" || watched[kind] != "") {
		return m.addList(at, document, h)
	}
	return m.addObject(at, document, h)
}

// addList adds the objects of a list.
func (m *Set) addList(at place, document []byte, h header) error {
	var l list
	unknown, err := decode(document, &l)
	if err := utilerrors.NewAggregate(append(unknown, err)); err != nil {
		return fmt.Errorf("%s: %s: %w", at, h.Kind, err)
	}
	of := metav1.TypeMeta{}
	if kind := strings.TrimSuffix(h.Kind, "List"); kind != "" {
		of = metav1.TypeMeta{APIVersion: h.APIVersion, Kind: kind}
	}
	for i, item := range l.Items {
		at.item = i + 1
		if err := m.add(at, item, of); err != nil {
			return err
		}
	}
	return nil
}

// watched are the kinds that a bridge watches, with their versions.
var watched = map[string]string{
	"Namespace": "v1", "Node": "v1", "Pod": "v1", "Service": "v1", "EndpointSlice": "discovery.k8s.io/v1",
	"NetworkPolicy": "networking.k8s.io/v1", egressKind: "coe-bridge.io/v1",
}

const egressKind = "EgressIP"

// addObject adds an object, or records that it is skipped.
func (m *Set) addObject(at place, document []byte, h header) (err error) {
	if watched[h.Kind] != h.APIVersion {
		if err := checkType(h); err != nil {
			return fmt.Errorf("%s: %s %s: %w", at, h.Kind, h.name(), err)
		}
		m.Skipped = append(m.Skipped, Skipped{h.Kind, h.name(), at.String(), whySkipped(h)})
		return nil
	}
	switch h.Kind {
	case "Namespace":
		err = read(m, at, h, document, &m.Namespaces, checkNamespace)
	case "Node":
		err = read(m, at, h, document, &m.Nodes, checkNode)
	case "Pod":
		err = read(m, at, h, document, &m.Pods, checkPod)
	case "Service":
		err = read(m, at, h, document, &m.Services, checkService)
	case "EndpointSlice":
		err = read(m, at, h, document, &m.Slices, checkSlice)
	case "NetworkPolicy":
		err = read(m, at, h, document, &m.Policies, checkPolicy)
	case egressKind:
		err = m.readEgressIP(at, h, document)
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s: %w", at, h.Kind, h.name(), err)
	}
	return nil
}

// read decodes, completes and checks an object, and adds it to a list.
func read[T any, O interface {
	*T
	metav1.Object
}](m *Set, at place, h header, document []byte, list *[]O, check func(O) error) error {
	o := O(new(T))
	unknown, err := decode(document, o)
	if err := utilerrors.NewAggregate(append(m.skipFields(at, h, unknown), err)); err != nil {
		return err
	}
	kind := reflect.TypeFor[T]().Name()
	if err := utilerrors.NewAggregate([]error{complete(kind, o), check(o)}); err != nil {
		return err
	}
	if err := m.once(at, kind+" "+o.GetNamespace()+"/"+o.GetName()); err != nil {
		return err
	}
	*list = append(*list, o)
	return nil
}

// readEgressIP adds an EgressIP. An invalid EgressIP of a cluster is skipped; a bridge reports it as a problem.
func (m *Set) readEgressIP(at place, h header, document []byte) error {
	var o unstructured.Unstructured
	if err := o.UnmarshalJSON(document); err != nil {
		return err
	}
	if err := complete(egressKind, &o); err != nil {
		return err
	}
	e := kube.EgressSpec(&o)
	switch why := cmp.Or(e.Invalid, e.InvalidAddress); {
	case why != "" && h.Metadata.ResourceVersion != "":
		m.Skipped = append(m.Skipped, Skipped{egressKind, e.Name, at.String(), why})
		return nil
	case why != "":
		return errors.New(why)
	}
	if err := m.once(at, egressKind+" "+e.Name); err != nil {
		return err
	}
	m.EgressIPs = append(m.EgressIPs, e)
	slices.SortStableFunc(m.EgressIPs, func(a, b *coe.EgressSpec) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return nil
}

// once notes the place of an object. It fails if the manifests have the object twice.
func (m *Set) once(at place, name string) error {
	if before, found := m.told[name]; found {
		return fmt.Errorf("%s has the same object: remove one of them", before)
	}
	if m.told == nil {
		m.told = map[string]string{}
	}
	m.told[name] = at.String()
	return nil
}

// decode reads JSON. Unknown fields have their own errors, because some of them are allowed.
func decode(document []byte, into any) (unknown []error, err error) {
	strict, err := strictjson.UnmarshalStrict(document, into)
	var others []error
	for _, e := range strict {
		if strings.HasPrefix(e.Error(), "unknown field ") {
			unknown = append(unknown, e)
		} else {
			others = append(others, e)
		}
	}
	return unknown, utilerrors.NewAggregate(append(others, explainType(err)))
}

// explainType says of a value of a wrong type which field it is, and what to do.
func explainType(err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok || wrong.Field == "":
		return err
	case wrong.Type.Kind() == reflect.String && wrong.Value != "object" && wrong.Value != "array":
		return fmt.Errorf("%s: want a text, not a %s: put it in quotes", wrong.Field, wrong.Value)
	}
	return fmt.Errorf("%s: want %s, not %s", wrong.Field, wrong.Type, wrong.Value)
}

// skipFields records the unknown fields that Read allows, and returns the others.
func (m *Set) skipFields(at place, h header, unknown []error) (refused []error) {
	for _, err := range unknown {
		path := err.Error()
		if of, ok := errors.AsType[strictjson.FieldError](err); ok {
			path = of.FieldPath()
		}
		fromServer := h.Metadata.ResourceVersion != "" && (h.Kind != "NetworkPolicy" || !strings.HasPrefix(path, "spec."))
		if !fromServer && path != "status" {
			refused = append(refused, err)
			continue
		}
		path = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "[]")
		if m.unknown[h.Kind+" "+path] {
			continue
		}
		if m.unknown == nil {
			m.unknown = map[string]bool{}
		}
		m.unknown[h.Kind+" "+path] = true
		m.Skipped = append(m.Skipped, Skipped{h.Kind + " field", path, at.String(), "this version of coe-bridge does not know it"})
	}
	return refused
}

// checkType finds misspelt types. Without the check, a policy with a misspelt kind would be
// skipped. An API server prints no misspelt kinds, and may be newer than this program.
func checkType(h header) error {
	if want := watched[h.Kind]; h.Kind == "NetworkPolicy" {
		return field.NotSupported(field.NewPath("apiVersion"), h.APIVersion, []string{want})
	}
	known := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(known), discoveryv1.AddToScheme(known), networkingv1.AddToScheme(known)); err != nil {
		return err
	}
	version := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	if h.Metadata.ResourceVersion == "" && known.IsVersionRegistered(version.GroupVersion()) && !known.Recognizes(version) {
		return field.Invalid(field.NewPath("kind"), h.Kind, h.APIVersion+" has no such kind")
	}
	return nil
}

// whySkipped returns the reason why a bridge ignores an object.
func whySkipped(h header) string {
	if version := watched[h.Kind]; version != "" {
		return fmt.Sprintf("version %s is supported, not %s", version, h.APIVersion)
	}
	switch strings.TrimSuffix(h.Kind, "List") {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob":
		return "its controller creates the pods; use the pods themselves, as kubectl get pods -o yaml prints them"
	case "Endpoints":
		return "the endpoints of a service are read from its EndpointSlices"
	}
	return "a bridge does not watch this kind"
}
