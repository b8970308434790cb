// Command demokube shows pods of a real Kubernetes cluster on coe-bridge.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/coe-bridge/coe-bridge/test/kubelab"
)

func main() {
	if os.Args[1] == "down" {
		fmt.Println(kubelab.Cleanup("kdemo"))
		return
	}
	l, err := kubelab.Start(context.Background(), kubelab.Config{Prefix: "kdemo", Nodes: []string{"node1", "node2"}, Bin: "bin", Survive: true, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	fmt.Println(err)
	if err == nil {
		fmt.Println(l.Install(context.Background()))
	}
}
