package yang

import (
	"fmt"
	"strings"

	goyang "github.com/openconfig/goyang/pkg/yang"
)

// Notification returns the notification named "module:name", or nil.
func (s *Schema) Notification(name string) *Node {
	prefix, local, _ := strings.Cut(name, ":")
	if module := s.byName[prefix]; module != nil {
		return module.Notification(local)
	}
	return nil
}

// addNotifications builds the notifications of all modules, after the top-level nodes.
func (l *loader) addNotifications() error {
	for i, module := range l.schema.Modules {
		for _, child := range inOrder(goyang.ToEntry(l.modules[i])) {
			if child.Kind != goyang.NotificationEntry {
				continue
			}
			node, err := l.build(child, nil)
			if err != nil {
				return fmt.Errorf("notification: %w", err)
			}
			module.Notifications = append(module.Notifications, node)
		}
	}
	return nil
}

func inNotification(e *goyang.Entry) bool {
	for ; e != nil; e = e.Parent {
		if e.Kind == goyang.NotificationEntry {
			return true
		}
	}
	return false
}

// isImplemented reports whether a module has something that clients of a server can see: data,
// notifications, operations, or identities that values can name.
func isImplemented(m *goyang.Module) bool {
	return len(m.Container)+len(m.List)+len(m.Leaf)+len(m.LeafList)+len(m.Choice)+len(m.Uses)+
		len(m.Augment)+len(m.Notification)+len(m.RPC)+len(m.Identity) > 0
}
