package coe

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unique"
)

// Labels are the labels of a pod or a namespace. The zero value has none. Equal Labels are ==
// and share their memory, because most pods have the labels of another pod.
type Labels struct{ text unique.Handle[string] }

// NewLabels returns the labels of a map. A key or value must not contain the byte 0.
func NewLabels(labels map[string]string) Labels {
	if len(labels) == 0 {
		return Labels{}
	}
	// The arrays stay on the stack for the labels of most pods, because every event of a pod comes here.
	keys := slices.AppendSeq(make([]string, 0, 16), maps.Keys(labels))
	slices.Sort(keys)
	text := make([]byte, 0, 512)
	for _, key := range keys {
		text = append(append(append(append(text, key...), 0), labels[key]...), 0)
	}
	return Labels{unique.Make(string(text))}
}

// All returns the labels, sorted by key.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if l == (Labels{}) {
			return
		}
		for rest := l.text.Value(); rest != ""; {
			var key, value string
			key, rest, _ = strings.Cut(rest, "\x00")
			value, rest, _ = strings.Cut(rest, "\x00")
			if !yield(key, value) {
				return
			}
		}
	}
}

// Get returns the value of a label.
func (l Labels) Get(key string) (value string, found bool) {
	for k, v := range l.All() {
		if k == key {
			return v, true
		}
	}
	return "", false
}

// ContainerPorts are the named ports of a pod's containers. The zero value has none. Equal
// ContainerPorts are == and share their memory.
type ContainerPorts struct{ text unique.Handle[string] }

// NewContainerPorts returns the ports that have a name. A name must not contain the byte 0.
func NewContainerPorts(ports ...ContainerPort) ContainerPorts {
	var texts []string
	for _, p := range ports {
		if p.Name != "" {
			texts = append(texts, p.Name+"\x00"+p.Protocol+"\x00"+strconv.Itoa(int(p.Port))+"\x00")
		}
	}
	if len(texts) == 0 {
		return ContainerPorts{}
	}
	slices.Sort(texts)
	return ContainerPorts{unique.Make(strings.Join(slices.Compact(texts), ""))}
}

// All returns the ports, in a fixed order.
func (p ContainerPorts) All() iter.Seq[ContainerPort] {
	return func(yield func(ContainerPort) bool) {
		if p == (ContainerPorts{}) {
			return
		}
		for rest := p.text.Value(); rest != ""; {
			var port ContainerPort
			var number string
			port.Name, rest, _ = strings.Cut(rest, "\x00")
			port.Protocol, rest, _ = strings.Cut(rest, "\x00")
			number, rest, _ = strings.Cut(rest, "\x00")
			n, _ := strconv.ParseUint(number, 10, 16)
			port.Port = uint16(n)
			if !yield(port) {
				return
			}
		}
	}
}
