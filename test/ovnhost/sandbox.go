package ovnhost

import (
	"context"
	"fmt"
)

// Sandbox makes the network namespace of a pod that somebody else plugs in, as the CNI
// plugin does, and returns its path.
func (l *Lab) Sandbox(ctx context.Context, pod string) (path string, err error) {
	name := l.Namespace(pod)
	if err := l.addNamespace(ctx, name); err != nil {
		return "", fmt.Errorf("make sandbox of pod %s: %w", pod, err)
	}
	return namespacePath(name), nil
}

// RemoveSandbox ends what runs in a sandbox and removes it. One that is not there is well.
func (l *Lab) RemoveSandbox(ctx context.Context, pod string) error {
	if err := l.closePod(pod); err != nil {
		return err
	}
	if err := removeNamespace(ctx, l.Namespace(pod)); err != nil {
		return fmt.Errorf("remove sandbox of pod %s: %w", pod, err)
	}
	return nil
}
