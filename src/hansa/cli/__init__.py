"""hansa's programs: the `hansa` command and what it starts.

- `program`: every command by its name, and how a command is run. `arguments`: how a command declares its
  arguments, how typed words are read, and what help says. `exit_status`: how a command ends.
- What several commands share: `registry_options`, `mesh_options`, `store_options`, `move_options`.
- Services: `registry_command`, `provide_command`, `services_command`, `call_command`.
- Topics: `topics_command`, `publish_command`, `subscribe_command`.
- Locks, leaders, members: `lock_command` and `lead_command`, which run an `owned_command` as a
  `guarded_command` that another process watches, `command_guardian`; `handovers_command`, and
  `handover_board`, which shows hand-overs; `members_command`.
- Work that is shared out: `assignments_command` looks on, and `assignments_board` is how all of them show it;
  `assignments_definitions`, what the work is divided into; `assignments_changes`, what is moved;
  `assignments_work_command`, a worker made by hand.
- Stores: `store_command`, `raft_command`.
- `demo_command`; `dev_command`, servers for development: `kafka_jars` fetches Kafka through Maven, and
  `kafka_broker` runs it.
- Output and signals of running commands: `log_lines`, `standard_streams`, `stop_signals`.
"""
